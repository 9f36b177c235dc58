"""The batch path: record batches (Kafka's format v2) passed from cluster to cluster without opening them."""
