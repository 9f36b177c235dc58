"""What Connect's topics say of a MirrorMaker 2, in the form in which they were seen on real ones."""

from __future__ import annotations

import pytest

from parallax.domain.ids import TopicName, TopicPartition
from parallax.domain.mirror_maker_positions import KeyedRecord, parts_at_work, recorded_positions
from parallax.errors import ConfigError

NAME = "MirrorSourceConnector"
T0, T1 = (TopicPartition(TopicName("trips"), number) for number in range(2))


def position(offset: int | None, partition: int = 0, name: str = NAME, cluster: str = "a") -> KeyedRecord:
    key = f'["{name}",{{"cluster":"{cluster}","partition":{partition},"topic":"trips"}}]'
    return key.encode(), None if offset is None else f'{{"offset":{offset}}}'.encode()


def test_a_position_is_the_offset_after_the_last_record() -> None:
    found = recorded_positions([position(0), position(41), position(6, 1)], NAME, "a")
    assert found.positions == {T0: 42, T1: 7}
    assert found.others == frozenset()


def test_what_was_taken_out_is_gone_and_what_is_another_ones_is_named() -> None:
    records = [
        position(3),
        position(None),
        position(9, 1),
        position(5, name="sink"),
        position(5, cluster="c"),
    ]
    found = recorded_positions(records, NAME, "a")
    assert found.positions == {T1: 10}
    assert found.others == {"sink (a)", f"{NAME} (c)"}


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"text",
        b'["x"]',
        b'["x",{"file":"y"}]',
        b'["x",{"cluster":"a","topic":"t","partition":"0"}]',
    ],
)
def test_records_of_other_connectors_are_passed_over(key: bytes | None) -> None:
    assert recorded_positions([(key, b'{"offset":1}')], NAME, "a").positions == {}


@pytest.mark.parametrize(
    "value", [b"", b"null", b"{}", b'{"offset":-1}', b'{"offset":"5"}', b'{"offset":true}', b"\xff"]
)
def test_a_position_that_can_not_be_read_is_named(value: bytes) -> None:
    with pytest.raises(ConfigError, match="trips-0 can't be read"):
        recorded_positions([(position(1)[0], value)], NAME, "a")


def status(part: str, state: str | None) -> KeyedRecord:
    return (
        f"status-{part}".encode(),
        None if state is None else f'{{"state":"{state}","trace":null}}'.encode(),
    )


def test_what_is_stopped_or_deleted_is_not_at_work_and_what_is_paused_or_failed_may_be() -> None:
    running = [status(f"connector-{NAME}", "RUNNING"), status(f"task-{NAME}-0", "FAILED")]
    assert parts_at_work(running, NAME) == ["task 0 is FAILED", "the connector is RUNNING"]
    stopped = [*running, status(f"connector-{NAME}", "STOPPED"), status(f"task-{NAME}-0", None)]
    assert parts_at_work(stopped, NAME) == []
    assert (
        parts_at_work([*running, status(f"connector-{NAME}", "PAUSED")], NAME)[-1]
        == "the connector is PAUSED"
    )
    assert parts_at_work([*running, *((key, None) for key, _ in running)], NAME) == []
    others = [status(f"connector-{NAME}2", "RUNNING"), status(f"task-{NAME}-x-0", "RUNNING"), (None, b"")]
    assert parts_at_work(others, NAME) == []
