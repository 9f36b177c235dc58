"""What the services need of the outside."""
