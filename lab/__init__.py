"""Real brokers, Cassandra and services on this machine, and what is played and measured on them; needs a checkout."""
