"""gRPC and REST."""
