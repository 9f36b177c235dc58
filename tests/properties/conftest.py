"""Hypothesis runs the same examples everywhere: a failure seen once is seen again."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None, max_examples=150)
settings.load_profile("fixed")
