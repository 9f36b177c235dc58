"""Answers where a group resumes in another cluster."""

import parallax  # noqa: F401 - tells who imports an old path of this package the new one
