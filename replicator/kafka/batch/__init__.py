"""The batch path: record batches passed on whole, over one event loop."""
