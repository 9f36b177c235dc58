"""Steady load for an hour with a kill a minute: nothing is lost, nothing comes twice, and nothing grows."""
