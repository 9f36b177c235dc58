"""The command line: a composition root."""
