"""From the run log into the mapping index."""
