"""Chooses the copy path of a lease."""

from __future__ import annotations

from parallax.config.config import Config
from replicator.kafka.choice import BatchConnector
from replicator.kafka.connector import Connector, KafkaConnector
from replicator.kafka.survey import EnsureTargetTopic


def connector_for(config: Config, ensure_target_topic: EnsureTargetTopic) -> Connector:
    """The doors of the configured path (``replicator.copy_path``)."""
    path = BatchConnector if config.replicator.copy_path == "batch" else KafkaConnector
    return path(config, ensure_target_topic)
