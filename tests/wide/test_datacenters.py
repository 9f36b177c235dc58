"""Two regions with a datacenter of the store each; one of them is lost with all it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from cassandra.cluster import Cluster

from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from lab.workload.distance import NarrowLink
from tests.support import poll_until
from tests.worlds.live import Live, live_world, new_keyspace
from tests.worlds.live_clients import Member, MortalMember, Traffic
from tests.worlds.live_judgement import check_once, more, wait_for, wait_for_reports
from tests.worlds.publishing import Application

OWN_STACK_TIMEOUT_S = 600
PER_S = {"a": 150, "b": 100}
FAR_BYTES_PER_S = 200
"""Far less than region a's stream, however long this machine takes for the rest."""

pytestmark = [pytest.mark.stack, pytest.mark.timeout(OWN_STACK_TIMEOUT_S)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    spec = StackSpec(("a", "b"), services=False, cassandra_per_region=True)
    with LocalStack(spec, tmp_path_factory.mktemp("wide")) as stack:
        yield stack


def test_every_region_has_its_datacenter(wide: LocalStack) -> None:
    host, port = wide.cassandra_address("b").split(":")
    cluster = Cluster([host], port=int(port), protocol_version=5)
    try:
        assert cluster.connect().execute("SELECT data_center FROM system.local").one() == ("b",)
        assert {node.datacenter for node in cluster.metadata.all_hosts()} == {"a", "b"}
    finally:
        cluster.shutdown()


@pytest.fixture
def live(wide: LocalStack, tmp_path: Path) -> Iterator[Live]:
    shared = new_keyspace(
        wide.cassandra_address("b"), local_datacenter="b", replication=dict.fromkeys("ab", 1)
    )
    everywhere = [wide.cassandra_address(region) for region in "ab"]
    stores = {region: {**shared, "contact_points": everywhere, "local_datacenter": region} for region in "ab"}
    with live_world(dict.fromkeys("ab", wide), stores, tmp_path) as made:
        yield made.on_new_topic()


def test_a_region_is_lost_with_all_it_has_and_returns(wide: LocalStack, live: Live) -> None:
    """Its clusters, its datacenter of the store, its offset service, a member of a group, a publisher of results."""
    billing, tally = live.group("billing"), live.group("tally")
    live.parallax("primary", billing, "--set", "a")
    live.parallax("primary", tally, "--set", "a", "--mode", "active_active")
    both = {billing: "moved", tally: "moved"}
    with ExitStack() as opened, Traffic(live, PER_S) as traffic:
        # The instance in a hears of decisions by a's own service alone: it believes in itself to the last.
        application = opened.enter_context(closing(Application(live, tally, {"a": "a", "b": "ba"})))
        mortal = MortalMember(live, billing)
        opened.callback(mortal.kill)
        member = opened.enter_context(closing(Member(live, billing)))
        members = [mortal, member]
        more([mortal], 300)
        more([member], 300)
        far_route = NarrowLink(live.bootstrap("a", "regional"), f"parallax-{live.names['b']}")
        far_route.narrow(FAR_BYTES_PER_S)
        more(members, 500)
        application.publishers["a"].hold()
        traffic.flow(200)
        traffic.hold()
        wait_for(members, traffic.acknowledged)
        wait_for_reports(live, billing, "a", members)
        application.wait_for_commits("a", traffic.acknowledged)

        traffic.stop("a")
        mortal.kill()
        live.kill_service("a")
        wide.kill("region-a")
        moved = live.move("failover", "--region", "a", "--to", "b", "--execute", "--disaster")
        assert {group: item["ending"] for group, item in moved.items()} == both
        assert sum(item["plan"]["pending_records"] for item in moved.values()) > 0
        traffic.go_on()
        more([member], 300)
        application.wait_for_results("b")
        application.publishers["a"].go_on()
        poll_until(lambda: application.publishers["a"].refused, 30, "the former publisher tries")

        traffic.hold()  # ten processes start on two cores
        wide.start("region-a")
        live.serve("a")
        traffic.go_on()
        far_route.widen()
        decided = live.number(billing, "b")
        poll_until(lambda: live.number(billing, "a") == decided, 60, "what was decided is known in a")
        more([member], 300)
        back = live.move("failback", "--region", "a", "--execute")
        assert {group: item["ending"] for group, item in back.items()} == both
        more([member], 300)
        acknowledged = traffic.stop()
        check_once(members, acknowledged)
        application.check(acknowledged, holders="aba")
