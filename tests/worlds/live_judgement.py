"""The judgement on what consumers were delivered: by stream and sequence number alone, knowing nothing of offsets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Message

from tests.support import poll_until
from tests.worlds.live import WITHIN_S, Live

QUIET_S = 2.0

Record = tuple[str, int]
"""Stream and sequence number."""


def record_of(message: Message) -> Record:
    """The record in a message."""
    value = message.value()
    assert value is not None
    return parsed(value.decode())


def parsed(text: str) -> Record:
    """The record in a message's text."""
    stream, _, number = text.partition(":")
    return stream, int(number)


class Reads(Protocol):
    """Whoever keeps what it was delivered.

    Attributes:
        delivered: in order.
        times_s: when, on the monotonic clock.
        next_offsets: behind the last record of each topic and partition, at the cluster that was read last.
        failure: what ended it; None while all is well.
    """

    delivered: list[Record]
    times_s: list[float]
    next_offsets: dict[tuple[str, int], int]
    failure: BaseException | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of the records that were acknowledged."""

    lost: list[Record]
    again: list[Record]


def judge(members: Sequence[Reads], acknowledged: Mapping[str, int]) -> Verdict:
    """Which records no member had, and which were had more than once."""
    return judge_records([record for member in members for record in member.delivered], acknowledged)


def judge_records(records: Sequence[Record], acknowledged: Mapping[str, int]) -> Verdict:
    """Which of the acknowledged records are missing, and which are there more than once."""
    counts = Counter(records)
    lost = [
        (stream, n) for stream, end in acknowledged.items() for n in range(end) if (stream, n) not in counts
    ]
    return Verdict(lost, [record for record, count in counts.items() if count > 1])


def check_once(members: Sequence[Reads], acknowledged: Mapping[str, int]) -> None:
    """Wait for every record: none is lost, and none was delivered twice."""
    wait_for_all(members, acknowledged)
    verdict = judge(members, acknowledged)
    assert (verdict.lost, verdict.again) == ([], []), deliveries(members, [*verdict.lost, *verdict.again])


def deliveries(members: Sequence[Reads], records: Collection[Record]) -> str:
    """Which member had which of these records, and when, on the monotonic clock.

    In one line, for of a failure's message a summary has no more; what the members told comes below.
    """
    wanted = set(records)
    first, further = [f"{len(wanted)} records lost or delivered again"], []
    for number, member in enumerate(members):
        by_stream: dict[str, list[tuple[int, float]]] = {}
        for (stream, n), at_s in zip(member.delivered, member.times_s, strict=True):
            if (stream, n) in wanted:
                by_stream.setdefault(stream, []).append((n, at_s))
        first += [
            f"member {number} had {stream}:{found[0][0]} to {found[-1][0]}, {len(found)} deliveries "
            f"from {found[0][1]:.3f} s to {found[-1][1]:.3f} s"
            for stream, found in sorted(by_stream.items())
        ]
        further += [f"member {number} told: {told}" for told in getattr(member, "told", ())]
    return "\n".join(["; ".join(first), *further])


def wait_for(members: Sequence[Reads], acknowledged: Mapping[str, int]) -> None:
    """Wait until every record has been delivered."""

    missing: Sequence[Record] = ()

    def all_there() -> bool:
        nonlocal missing
        delivered(members)
        missing = judge(members, acknowledged).lost
        return not missing

    try:
        poll_until(all_there, WITHIN_S, "all records")
    except AssertionError as error:
        some = ", ".join(f"{stream}:{n}" for stream, n in missing[:20])
        raise AssertionError(f"{error}: {len(missing)} are missing: {some}") from None


def wait_for_all(members: Sequence[Reads], acknowledged: Mapping[str, int]) -> None:
    """Wait until every record has been delivered, and none has come for two seconds."""
    wait_for(members, acknowledged)
    poll_until(
        lambda: all(time.monotonic() - member.times_s[-1] > QUIET_S for member in members if member.times_s),
        WITHIN_S,
        "nothing more",
    )


def delivered(members: Sequence[Reads]) -> int:
    """How many records they had; what ended one of them is raised."""
    for member in members:
        if member.failure is not None:
            raise member.failure
    return sum(len(member.delivered) for member in members)


def more(members: Sequence[Reads], count: int) -> None:
    """Wait for so many more records."""
    wanted = delivered(members) + count
    poll_until(lambda: delivered(members) >= wanted, WITHIN_S, f"{count} more records")


def wait_for_reports(live: Live, group: str, region: str, members: Sequence[Reads]) -> None:
    """Wait until the services know of all that the members were delivered at a region."""
    furthest: dict[tuple[str, int], int] = {}
    for member in members:
        for place, offset in member.next_offsets.items():
            furthest[place] = max(offset, furthest.get(place, 0))

    def known() -> bool:
        reported = live.reported(group, region)
        return all(reported.get(place, 0) >= offset for place, offset in furthest.items())

    poll_until(known, 30, "reports of all that was delivered")
