"""Judges of a run: they know records by region and number, and nothing of how Parallax maps offsets."""
