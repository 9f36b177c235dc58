"""The positions that a move starts from, and those that are reported."""

from __future__ import annotations

import time

from parallax.consumer.delivery import Delivery, PartitionState
from parallax.consumer.moves import Position
from parallax.consumer.ports import Key
from parallax.consumer.reporting import Report
from parallax.consumer.settings import MoveFrom
from parallax.v1 import offsets_pb2 as pb


def moving_positions(delivery: Delivery, *, move_from: MoveFrom, auto_commit: bool) -> dict[Key, Position]:
    """How far each partition has come, for a move; partitions that were never assigned keep their own move."""
    now = time.monotonic()
    with delivery.lock:
        positions = {key: Position(start.offset, commit=False) for key, start in delivery.answers.items()}
        for key, state in delivery.partitions.items():
            ago_s = None if state.delivered_at_s is None else now - state.delivered_at_s
            done = state.stored if auto_commit else state.committed
            if move_from == "committed":
                base = state.gate.floor if done is None else done
                positions[key] = Position(base, state.leader_epoch, ago_s, commit=done is not None)
            else:
                positions[key] = Position(
                    state.gate.position,
                    state.leader_epoch,
                    ago_s,
                    committed=None if done == state.gate.position else done,
                    commit=done is not None,
                )
        return positions


def report_of(delivery: Delivery, *, auto_commit: bool) -> Report:
    """What the application is done with: what another process could go on from if this one and its cluster die."""
    with delivery.lock:
        positions = {
            key: _message(key, state, done)
            for key, state in delivery.partitions.items()
            if (done := state.stored if auto_commit else state.committed) is not None
        }
    return Report(delivery.region, positions)


def _message(key: Key, state: PartitionState, next_offset: int) -> pb.PartitionPosition:
    return pb.PartitionPosition(
        topic=key[0],
        partition=key[1],
        next_offset=next_offset,
        leader_epoch=state.leader_epoch if state.leader_epoch >= 0 else None,
    )
