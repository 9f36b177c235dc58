"""Kafka behind the ports: what the services ask of a cluster."""
