"""What the record path's producer makes of errors that can't be made on a real broker."""

from __future__ import annotations

from typing import NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException

from parallax.domain.ids import ClusterName
from parallax.errors import ClusterUnavailableError, FencedError
from replicator.kafka.record.target import KafkaTarget


class LosingProducer:
    """A producer whose library loses the fatal error on its way out of a callback."""

    def __init__(self, repeated: KafkaError | None) -> None:
        self._repeated = repeated

    def flush(self, _timeout_s: float) -> NoReturn:
        raise SystemError("<built-in method flush> returned NULL without setting an exception")

    def begin_transaction(self) -> None:
        if self._repeated is not None:
            raise KafkaException(self._repeated)


def target_of(producer: LosingProducer) -> KafkaTarget:
    target = KafkaTarget.__new__(KafkaTarget)
    target._cluster = ClusterName("aggregate-b")
    target._producer = producer  # type: ignore[assignment] # only what is called
    return target


def test_a_fatal_error_that_the_library_lost_is_asked_for_again() -> None:
    producer = LosingProducer(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))
    with pytest.raises(FencedError, match="fenced by a newer instance"):
        target_of(producer)._call("waiting for acknowledgements", producer.flush, 1.0)


def test_one_that_is_not_told_again_ends_the_session_all_the_same() -> None:
    producer = LosingProducer(None)
    with pytest.raises(ClusterUnavailableError, match="without saying why"):
        target_of(producer)._call("waiting for acknowledgements", producer.flush, 1.0)
