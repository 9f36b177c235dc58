"""What the operator of a storm does: commands of the product, and offsets set back by the means of any Kafka tool."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from lab.stack.services import PARALLAX
from lab.workload.topics import delete_topic
from lab.workload.worker import WorkerError

_COMMAND_S = 150.0
"""A move waits a minute for its group to leave and another one for records to arrive."""
_ATTEMPTS = 3
_ANSWER_S = 10.0
_EMPTY_S = 60.0
_ASK_EVERY_S = 0.5
_ENDED_WELL = {"moved", "already_there"}


class CommitSeen(NamedTuple):
    """A group's committed next offset, and the metadata that came with it."""

    next_offset: int
    metadata: str


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    error: str


def parallax_command(config: Path) -> Callable[[Sequence[str]], Ended]:
    """Runs `parallax` commands with a configuration file, for JSON.

    They raise WorkerError if they don't end in time.
    """

    def run(arguments: Sequence[str]) -> Ended:
        command = [*PARALLAX, *arguments, "--config", str(config), "--json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
        except subprocess.TimeoutExpired as error:
            raise WorkerError(
                f"`parallax {' '.join(arguments)}` has not ended within {_COMMAND_S:.0f} s"
            ) from error
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


def index_lag(replicator_url: str) -> Callable[[], float | None]:
    """Asks a replicator's status server how far the index is behind its leases, in milliseconds; None: it does not tell."""

    def longest_ms() -> float | None:
        try:
            leases = (
                httpx.get(f"{replicator_url}/status", timeout=_ANSWER_S).raise_for_status().json()["leases"]
            )
        except httpx.HTTPError:
            return None
        return max((lease["index_lag_ms"] for lease in leases if not lease["ended"]), default=None)

    return longest_ms


class Operator:
    """Gives commands, the same one again where the runbook says so.

    Args:
        run: runs one with its arguments.
        remark: hears what came of each.
    """

    def __init__(self, run: Callable[[Sequence[str]], Ended], remark: Callable[[str], None]) -> None:
        self._run, self._remark = run, remark

    def set_primary(self, group: str, region: str) -> None:
        """Record where a group is primary.

        Raises:
            WorkerError: the command failed.
        """
        code, out, error = self._run(["primary", group, "--set", region])
        if code != 0:
            raise WorkerError(f"`parallax primary {group} --set {region}` failed: {out}{error}")

    def move(self, arguments: Sequence[str], groups: Sequence[str]) -> None:
        """Carry a move out, as often as it takes.

        Args:
            arguments: of `parallax`, without ``--execute``.
            groups: that are to have moved in the end.

        Raises:
            WorkerError: a group did not arrive, or another one was moved.
        """
        command, moved, problem = " ".join(arguments), set[str](), ""
        for _ in range(_ATTEMPTS):
            code, out, error = self._run([*arguments, "--execute"])
            try:
                answer = json.loads(out)
            except json.JSONDecodeError:
                problem = f"exit code {code}: {_last_line(error) or _last_line(out)}"
                self._remark(f"{command}: {problem}")
                continue
            results = answer if isinstance(answer, list) else [answer]
            self._remark(f"{command}: {'; '.join(_ending(result) for result in results) or 'no group'}")
            moved |= {result["group"] for result in results if result["ending"] in _ENDED_WELL}
            strangers = {result["group"] for result in results}.difference(groups)
            if strangers:
                raise WorkerError(f"`parallax {command}` took along {', '.join(sorted(strangers))}")
            if moved == set(groups):
                return
            problem = (
                "; ".join(result["problem"] for result in results if result["problem"]) or "no group to move"
            )
        missing = ", ".join(sorted(set(groups) - moved))
        raise WorkerError(f"`parallax {command}` did not move {missing} in {_ATTEMPTS} attempts: {problem}")

    def sync_beside(self, seconds: float) -> None:
        """Publish offsets beside the sync job, again and again for so long.

        Raises:
            WorkerError: not once did it end well.
        """
        ended: list[Ended] = []
        over_at = time.monotonic() + seconds
        while not ended or time.monotonic() < over_at:
            ended.append(self._run(["sync", "--once"]))
        well = sum(not item.code for item in ended)
        self._remark(f"a second sync job ran {len(ended)} times, {well} of them well")
        if not well:
            raise WorkerError(f"`parallax sync --once` failed: {_last_line(ended[-1].error)}")

    def run_log_is_refused(self, route: str) -> bool:
        """Whether the product says that something is wrong with a route's run log."""
        return self._run(["runlog", "check", "--route", route]).code == 1

    def rebuild_run_log(self, route: str) -> None:
        """Make a route's run log anew; nothing copies the route meanwhile.

        Raises:
            WorkerError: the command failed.
        """
        code, out, error = self._run(["runlog", "rebuild", "--route", route, "--execute"])
        if code != 0:
            raise WorkerError(f"`parallax runlog rebuild --route {route}` failed: {_last_line(error)}")
        plan = json.loads(out)
        going_on = Counter(partition["going_on"] for partition in plan["partitions"])
        self._remark(
            f"the run log of {route} is rebuilt; partitions go on: {dict(going_on)}; "
            f"records twice at most: {plan['records_twice_at_most']}"
        )


class GroupOffsets:
    """Groups' committed offsets on a topic, as any Kafka tool reads and resets them.

    Args:
        bootstrap: bootstrap servers by cluster name.
        topic: the topic.
        partitions: how many it has.
    """

    def __init__(self, bootstrap: Callable[[str], str], topic: str, partitions: int) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions

    def read(self, cluster: str, group: str) -> dict[int, CommitSeen]:
        """A group's commits on one cluster by partition; where there is none it is left out.

        Raises:
            WorkerError: the cluster did not answer.
        """
        asked = [TopicPartition(self._topic, number) for number in range(self._partitions)]
        with closing(self._plain(cluster, group)) as consumer:
            try:
                found = consumer.committed(asked, timeout=_ANSWER_S)
            except KafkaException as error:
                raise WorkerError(f"{cluster}: no offsets of group {group}: {error}") from error
        return {
            item.partition: CommitSeen(item.offset, item.metadata or "") for item in found if item.offset >= 0
        }

    def set(self, cluster: str, group: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a group that has no members, as `kafka-consumer-groups --reset-offsets` does.

        Raises:
            WorkerError: the cluster did not take them: it still lists members, or does not answer.
        """
        wanted = [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]
        give_up_at = time.monotonic() + _EMPTY_S
        while (problem := self._refusal(cluster, group, wanted)) and time.monotonic() < give_up_at:
            time.sleep(_ASK_EVERY_S)
        if problem:
            raise WorkerError(
                f"{cluster}: the offsets of {group} could not be set within {_EMPTY_S:.0f} s: {problem}"
            )

    def describe(self, cluster: str, group: str) -> str:
        """What a cluster says of a group and its members, as `kafka-consumer-groups --describe --members` does; or why it does not."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap(cluster), "log_level": 3})
        try:
            found = admin.describe_consumer_groups([group], request_timeout=_ANSWER_S)[group].result(
                timeout=2 * _ANSWER_S
            )
        except (KafkaException, TimeoutError) as error:
            return f"{group} at {cluster}: {str(error) or 'no answer'}"
        members = [
            f"{member.member_id} has {sorted(item.partition for item in member.assignment.topic_partitions)}"
            for member in found.members
        ]
        return f"{group} at {cluster}: {found.state.name}, {', '.join(members) or 'no members'}"

    def delete_topic(self, cluster: str, topic: str) -> None:
        """Delete a topic, as `kafka-topics --delete` does.

        Raises:
            WorkerError: the cluster refused, or did not answer.
        """
        delete_topic(self._bootstrap(cluster), topic)

    def delete(self, cluster: str, group: str) -> None:
        """Delete a group without members, as `kafka-consumer-groups --delete` does; nothing happens if there is none.

        Raises:
            WorkerError: the cluster still lists members, or does not answer.
        """
        admin = AdminClient({"bootstrap.servers": self._bootstrap(cluster), "log_level": 3})
        give_up_at = time.monotonic() + _EMPTY_S
        while True:
            future = admin.delete_consumer_groups([group], request_timeout=_ANSWER_S)[group]
            try:
                future.result(timeout=2 * _ANSWER_S)
            except TimeoutError as error:
                if time.monotonic() > give_up_at:
                    raise WorkerError(f"{cluster}: group {group} could not be deleted: no answer") from error
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return
                if time.monotonic() > give_up_at:
                    raise WorkerError(f"{cluster}: group {group} could not be deleted: {error}") from error
                time.sleep(_ASK_EVERY_S)
            else:
                return

    def _refusal(self, cluster: str, group: str, wanted: list[TopicPartition]) -> str:
        """Why the cluster did not take the offsets; empty if it did."""
        with closing(self._plain(cluster, group)) as consumer:
            try:
                answers = consumer.commit(offsets=wanted, asynchronous=False) or []
            except KafkaException as error:
                return str(error)
        return "; ".join(str(item.error) for item in answers if item.error is not None)

    def _plain(self, cluster: str, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap(cluster),
                "group.id": group,
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )


def _ending(result: Mapping[str, Any]) -> str:
    problem = f" ({result['problem']})" if result["problem"] else ""
    return f"{result['group']} {result['ending']} in {result['took_ms'] / 1_000:.1f} s{problem}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
