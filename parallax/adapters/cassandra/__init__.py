"""Cassandra behind the store ports."""
