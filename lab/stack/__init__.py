"""Real Kafka brokers, Cassandra and services as child processes on one machine."""
