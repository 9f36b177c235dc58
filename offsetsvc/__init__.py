"""Answers where a group resumes in another cluster."""
