"""Moves groups between aggregate clusters on an operator's word."""
