"""The client of the offset service."""
