"""Transactions as the coordinator sees them, and the end of hanging ones."""
