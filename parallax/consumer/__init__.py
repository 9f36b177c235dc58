"""The parts of `parallax.consumer.consumer.FailoverConsumer`."""
