"""The configuration of services and commands."""
