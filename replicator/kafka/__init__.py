"""The copy loop's ports over real clusters."""
