"""Parallax: exact offsets across aggregate Kafka clusters."""
