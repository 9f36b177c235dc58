"""Whatever happens to the clusters: each record ends once, where its report says, and in no other place unsaid."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.worlds.producer_fakes import TOPIC, FakeRegional, ProducerWorld

REGIONS = ("a", "b", "c")
region_names = st.sampled_from(REGIONS)


class Producing(RuleBasedStateMachine):
    """An application that produces and polls while regions come and go."""

    world: ProducerWorld

    @initialize(
        policy=st.sampled_from(["resend", "report"]),
        count=st.integers(1, 3),
        timeout_ms=st.sampled_from([3_000, 60_000]),
    )
    def begin(self, policy: str, count: int, timeout_ms: int) -> None:
        self.world = ProducerWorld(
            REGIONS[:count],
            config={"message.timeout.ms": timeout_ms, "queue.buffering.max.messages": 40},
            on_unacknowledged=policy,
            return_after_ms=2_000,
            stalled_after_ms=8_000,
            check_interval_ms=5_000,
        )
        self.keys: dict[bytes, int] = {}
        self.order: dict[bytes, int] = {}

    def cluster(self, region: str) -> FakeRegional:
        return self.world.clusters.get(region, self.world.clusters["a"])

    @rule(count=st.integers(1, 12), partition=st.integers(0, 3))
    def produce(self, count: int, partition: int) -> None:
        for _ in range(count):
            number = len(self.order)
            try:
                name = self.world.produce(f"r{number}", partition=partition)
            except BufferError:
                assert len(self.world.delivery.ledger) >= 10
                return
            self.order[name], self.keys[name] = number, partition

    @rule(times=st.integers(1, 60))
    def poll(self, times: int) -> None:
        self.world.step(times=times)

    @rule(seconds=st.sampled_from([0.05, 1.5, 12.0]))
    def be_busy_elsewhere(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.world.pilot.round()

    @rule(region=region_names)
    def kill(self, region: str) -> None:
        self.cluster(region).up = False

    @rule(region=region_names)
    def start(self, region: str) -> None:
        self.cluster(region).up = True

    @rule(region=region_names, mute=st.booleans())
    def acknowledge_nothing(self, region: str, mute: bool) -> None:  # noqa: FBT001 - hypothesis passes by name
        self.cluster(region).mute = mute

    @rule(region=region_names, partitions=st.sets(st.integers(0, 3), max_size=2))
    def lose_leaders(self, region: str, partitions: set[int]) -> None:
        self.cluster(region).leaderless = partitions

    @rule(region=region_names, count=st.sampled_from([4, 6]))
    def change_topic(self, region: str, count: int) -> None:
        self.cluster(region).topics = {TOPIC: count}

    @rule(region=region_names, capacity=st.sampled_from([10, 10_000]))
    def fill_librdkafka(self, region: str, capacity: int) -> None:
        for inner in self.cluster(region).inners:
            inner.capacity = capacity

    @rule()
    def break_librdkafka(self) -> None:
        inner = self.world.delivery.site.inner
        inner.config["error_cb"](KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap", fatal=True))  # type: ignore[attr-defined] - a FakeInner

    @rule(in_queue=st.booleans(), in_flight=st.booleans())
    def purge(self, in_queue: bool, in_flight: bool) -> None:  # noqa: FBT001 - as above
        self.world.delivery.purge(in_queue=in_queue, in_flight=in_flight, blocking=True)

    @invariant()
    def reports_are_true(self) -> None:
        if not hasattr(self, "world"):
            return
        logs = {name: Counter(cluster.log) for name, cluster in self.world.clusters.items()}
        for name, found in self.world.reported.items():
            assert len(found) <= 1, "reported twice"
            for error, report in found:
                written = {region for region, log in logs.items() if log[name]}
                assert (error is None) == (report.region is not None)
                if report.region is not None:
                    assert report.region in written, "acknowledged, and not there"
                assert written <= {report.region, *report.unconfirmed}, "written where nobody said"
                if error is None and not report.maybe_duplicate:
                    assert sum(log[name] for log in logs.values()) == 1

    @invariant()
    def sites_that_were_left_send_nothing(self) -> None:
        if not hasattr(self, "world"):
            return
        delivery = self.world.delivery
        live = {id(site.inner) for site in (delivery.site, *delivery.others) if not site.left}
        for cluster in self.world.clusters.values():
            for inner in cluster.inners:
                assert id(inner) in live or not inner.queue

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for cluster in self.world.clusters.values():
            cluster.up, cluster.mute, cluster.leaderless, cluster.topics = True, False, set(), {TOPIC: 4}
            for inner in cluster.inners:
                inner.capacity = 10_000
        self.world.settle()
        self.reports_are_true()
        assert all(len(self.world.reported[name]) == 1 for name in self.world.accepted), "never reported"
        counts = self.world.delivery.ledger.counts
        ended = [self.world.report(name) for name in self.world.accepted]
        assert sum(counts.acknowledged.values()) == sum(error is None for error, _ in ended)
        assert counts.failed == sum(error is not None for error, _ in ended)
        assert counts.maybe_duplicate == sum(report.maybe_duplicate for _, report in ended)
        self.order_holds_for_what_was_never_taken_back()

    def order_holds_for_what_was_never_taken_back(self) -> None:
        for cluster in self.world.clusters.values():
            for partition in range(4):
                mine = [
                    self.order[name]
                    for name in cluster.log
                    if self.keys[name] == partition and not self.world.report(name)[1].unconfirmed
                ]
                assert mine == sorted(mine)


Producing.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestProducing = Producing.TestCase
