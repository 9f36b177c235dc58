"""Drills: a synthetic group goes to another region and back, on a live stack, and is held against what was produced."""
