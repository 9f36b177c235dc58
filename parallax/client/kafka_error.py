"""Errors of ours that an application catches as confluent-kafka's own."""

from __future__ import annotations

from typing import ClassVar

from confluent_kafka import KafkaError, KafkaException


class RaisedAsKafkaError(KafkaException):
    """Told by a sentence; ``args[0]`` is a KafkaError, as applications expect it of a KafkaException.

    Attributes:
        kafka_code: the error code that confluent-kafka has for the like.
    """

    kafka_code: ClassVar[int]

    def __init__(self, why: str) -> None:
        super().__init__(KafkaError(self.kafka_code, why))

    def __str__(self) -> str:
        return str(self.args[0].str())
