"""Implementations of the ports: one folder per outside system."""
