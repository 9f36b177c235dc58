"""The proof, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from time import monotonic
from typing import Any, Protocol

from lab.oracle.answers import TrueMapping
from lab.oracle.copies import compare_copies
from lab.oracle.logs import TopicLog, count_inversions, read_topic
from lab.oracle.outage import stalls_s
from lab.prove.ask import Answers, OffsetSweep
from lab.prove.kill import Kill, kill_in_transaction, lose_store
from lab.prove.options import ProveOptions
from lab.workload.delivered import read_group
from lab.workload.distance import FAR_READER, NarrowLink
from lab.workload.playing import Stack
from lab.workload.topics import EndOffsets, create_topic, total, wait_for_topic
from lab.workload.worker import Worker, WorkerError, producer_of, wait_until
from parallax.errors import ParallaxError

_REGIONS = ("a", "b")
_TOPIC_S = 60.0
_PRODUCED_S = 300.0
_COPIED_S = 180.0
_INDEXED_S = 60.0


class ProofProgress(Protocol):
    """Shows how far the proof is."""

    def begin(self, text: str, total: int | None = None) -> None:
        """A step begins, of ``total`` parts if it can be counted."""

    def reach(self, parts: int) -> None:
        """So many parts of the step are done."""

    def advance(self, parts: int) -> None:
        """So many more parts of the step are done."""

    def remark(self, text: str) -> None:
        """Something worth a line."""


class Proof:
    """One run.

    Args:
        options: sizes.
        stack: empty and up.
        progress: shows the steps.
    """

    def __init__(self, options: ProveOptions, stack: Stack, progress: ProofProgress) -> None:
        self._options, self._stack, self._progress = options, stack, progress
        self._ends = {
            f"aggregate-{region}": EndOffsets(
                stack.bootstrap(f"aggregate-{region}"), options.topic, options.partitions
            )
            for region in _REGIONS
        }
        self._producers = [self._producer(region) for region in _REGIONS]
        self._readers = {f"aggregate-{region}": self._reader(region) for region in _REGIONS}

    def run(self) -> dict[str, Any]:
        """Do it; returns the report.

        Raises:
            WorkerError, StackError, ParallaxError: something that the proof needs did not work.
        """
        with ExitStack() as clean_up:
            for worker in (*self._producers, *self._readers.values()):
                clean_up.callback(worker.kill)
            kill = self._produce_and_kill()
            sources, targets = self._await_copies()
            for reader in self._readers.values():
                reader.stop()
            asker = OffsetSweep(
                [self._stack.layout.grpc_address(region) for region in _REGIONS],
                group="prove",
                topic=self._options.topic,
                threads=self._options.threads,
            )
            clean_up.callback(asker.close)
            if self._options.store_lost:
                self._await_index(asker)
                self._progress.begin("Cassandra is lost, and the index filled again")
                lose_store(self._stack, self._progress.remark)
            answers, asked_s = self._ask(asker, targets)
        return self._report(kill, sources, targets, answers, asked_s)

    def _producer(self, region: str) -> Worker:
        options, bootstrap = self._options, self._stack.bootstrap(f"regional-{region}")
        plan = options.plan_of(region)
        return producer_of(region, bootstrap, options.topic, plan, options.directory)

    def _reader(self, region: str) -> Worker:
        options, cluster = self._options, f"aggregate-{region}"
        arguments = ["consume", "--bootstrap-servers", self._stack.bootstrap(cluster), "--cluster", cluster]
        arguments += ["--topic", options.topic, "--group", f"reader-{region}"]
        arguments += ["--log", str(options.directory / cluster / "reader.log")]
        return Worker(f"reader-{region}", arguments, options.directory / cluster / "reader.err")

    def _produce_and_kill(self) -> Kill:
        options, progress = self._options, self._progress
        for region in _REGIONS:
            create_topic(self._stack.bootstrap(f"regional-{region}"), options.topic, options.partitions)
        for region in _REGIONS:
            bootstrap = self._stack.bootstrap(f"aggregate-{region}")
            wait_for_topic(bootstrap, options.topic, options.partitions, _TOPIC_S)
        # Region a's records come late to aggregate-b, so that the two aggregates differ in their order for certain.
        far_route = NarrowLink(self._stack.bootstrap("regional-a"), FAR_READER)
        far_route.narrow(options.narrow_bytes_per_s)
        for worker in (*self._producers, *self._readers.values()):
            worker.start()
        progress.begin("records produced", options.records)
        self._until(
            lambda: self._phases() >= {2}, 3 * options.flow_s + _TOPIC_S, "the second stretch did not begin"
        )
        far_route.widen()
        self._until(
            lambda: self._committed() >= options.records // 2,
            2 * options.flow_s + _TOPIC_S,
            "too few records",
        )
        kill = kill_in_transaction(self._stack, self._ends, progress.remark)
        self._until(
            lambda: all(worker.events("done") for worker in self._producers),
            _PRODUCED_S,
            "producers did not finish",
        )
        return kill

    def _phases(self) -> set[int]:
        """Phases that every producer has begun."""
        begun = [{event["number"] for event in worker.events("phase")} for worker in self._producers]
        return set.intersection(*begun)

    def _committed(self) -> int:
        figures = [worker.status for worker in self._producers]
        return sum(int(figure.get("acked", 0)) - int(figure.get("aborted", 0)) for figure in figures)

    def _await_copies(self) -> tuple[dict[str, TopicLog], dict[str, TopicLog]]:
        """Wait until the aggregates hold as many records as the sources, then read them all."""
        topic = self._options.topic
        sources = {region: self._read("regional", region) for region in _REGIONS}
        wanted = sum(source.count for source in sources.values())
        self._progress.begin("records copied to both aggregates", 2 * wanted)
        delivered = 0

        def copied() -> bool:
            nonlocal delivered
            delivered = sum(int(reader.status.get("delivered", 0)) for reader in self._readers.values())
            self._progress.reach(delivered)
            return delivered >= 2 * wanted

        try:
            wait_until(copied, _COPIED_S, f"{delivered:,} of {2 * wanted:,} records were copied")
        except WorkerError:
            # The comparison says exactly what is missing.
            self._progress.remark(
                f"only {delivered:,} of {2 * wanted:,} records of {topic} were seen in time"
            )
        return sources, {region: self._read("aggregate", region) for region in _REGIONS}

    def _read(self, kind: str, region: str) -> TopicLog:
        name = f"{kind}-{region}"
        return read_topic(name, self._stack.bootstrap(name), self._options.topic)

    def _ask(self, asker: OffsetSweep, targets: Mapping[str, TopicLog]) -> tuple[Answers, float]:
        self._progress.begin("waiting for the index")
        origin_ends = self._await_index(asker)
        mappings = {
            partition: TrueMapping(partition, records, targets["b"].partitions[partition])
            for partition, records in targets["a"].partitions.items()
        }
        self._progress.begin("offsets asked", total(origin_ends) + len(origin_ends))
        started = monotonic()
        return asker.ask_all(mappings, origin_ends, self._progress.advance), monotonic() - started

    def _await_index(self, asker: OffsetSweep) -> Mapping[int, int]:
        """Wait until every service would send a group that has consumed everything to the end: then all rows are indexed.

        Returns:
            Where aggregate-a ends, by partition.
        """
        ends = {cluster: asked.ask(within_s=10.0) for cluster, asked in self._ends.items()}
        origin, destination = ends["aggregate-a"], ends["aggregate-b"]
        if origin is None or destination is None:
            raise WorkerError("an aggregate cluster does not answer")

        def indexed() -> bool:
            try:
                answers = [
                    asker.ask(partition, end, service)
                    for service in range(len(_REGIONS))
                    for partition, end in origin.items()
                ]
            except ParallaxError as error:
                self._progress.remark(f"not answered yet: {error}")
                return False
            return all(answer.resume_offset >= destination[answer.partition] for answer in answers)

        wait_until(indexed, _INDEXED_S, f"the index was not complete after {_INDEXED_S:.0f} s")
        return origin

    def _report(
        self,
        kill: Kill,
        sources: Mapping[str, TopicLog],
        targets: Mapping[str, TopicLog],
        answers: Answers,
        asked_s: float,
    ) -> dict[str, Any]:
        options = self._options
        copies = {target.cluster: compare_copies(sources.values(), target) for target in targets.values()}
        stalled = {
            cluster: stalls_s(read_group(options.directory / cluster), partitions, kill.at_ms)
            for cluster, partitions in kill.stable_ends.items()
        }
        report: dict[str, Any] = {
            "records": sum(source.count for source in sources.values()),
            "offsets_asked": answers.asked,
            "violations": answers.violations,
            "inversions": count_inversions(targets["a"], targets["b"]),
            "skip_ranges": answers.skip_ranges,
            "most_skip_ranges_in_an_answer": answers.most_skip_ranges,
            "lost_records": sum(verdict.lost_records for verdict in copies.values()),
            "duplicates": sum(verdict.duplicated_records for verdict in copies.values()),
            "stalled_s": max(
                (seconds or 0.0 for held in stalled.values() for seconds in held.values()), default=0.0
            ),
            "stalls_s": stalled,
            "tries": kill.tries,
            "outcomes": dict(answers.outcomes),
            "incomplete_answers": answers.incomplete,
            "asked_per_s": round(answers.asked / asked_s, 1),
            "copies": {name: asdict(verdict) for name, verdict in copies.items()},
            "examples": [asdict(violation) for violation in answers.examples],
        }
        report["failures"] = self._failures(report, all(verdict.faultless for verdict in copies.values()))
        return report

    def _failures(self, report: Mapping[str, Any], faultless: bool) -> list[str]:  # noqa: FBT001 - one caller
        found = []
        if report["violations"]:
            found.append(f"{report['violations']:,} of {report['offsets_asked']:,} answers are wrong")
        if not faultless:
            found.append("an aggregate topic is not a faithful copy of its sources")
        if report["inversions"] < self._options.least_inversions:
            found.append(
                f"only {report['inversions']:,} inversions: the aggregates are too alike to prove anything"
            )
        if not report["skip_ranges"]:
            found.append("no answer had a skip range: nothing was proved about them")
        if any(seconds is None for held in report["stalls_s"].values() for seconds in held.values()):
            found.append("a reader never got beyond the transaction that the kill left unfinished")
        return found

    def _until(self, reached: Callable[[], bool], within_s: float, otherwise: str) -> None:
        def reached_or_broken() -> bool:
            for worker in (*self._producers, *self._readers.values()):
                worker.check()
            self._progress.reach(self._committed())
            return reached()

        wait_until(reached_or_broken, within_s, f"{otherwise} in {within_s:.0f} s")
