"""The parts of `offsetsvc.failover_consumer.FailoverConsumer`."""
