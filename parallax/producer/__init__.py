"""The parts of `parallax.producer.producer.FailoverProducer`."""
