"""The copy loop, and the ports through which it meets Kafka."""
