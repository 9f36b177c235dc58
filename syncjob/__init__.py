"""Publishes resume offsets continuously."""
