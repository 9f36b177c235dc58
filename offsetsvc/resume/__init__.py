"""The answer to one question: where a group goes on, why, and what it skips."""
