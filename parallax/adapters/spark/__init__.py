"""Long-lived leases on Structured Streaming."""
