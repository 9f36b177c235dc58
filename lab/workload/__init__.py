"""Trip events and the processes that produce and consume them, each a child of its own with bounded work."""
