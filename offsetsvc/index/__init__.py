"""The mapping index as the service reads it: rows, lineages, and what is remembered of them."""
