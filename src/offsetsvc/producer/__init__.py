"""The parts of `offsetsvc.failover_producer.FailoverProducer`."""
