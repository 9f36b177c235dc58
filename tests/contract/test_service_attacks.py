"""What a stranger would do to a group, over the real APIs and with the real sync job behind them.

Each attack cost a group its records, its consumers or the store its room while nobody was asked for a name. Here each is
refused and leaves nothing; and where the door is left open, it does the harm that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from offsetsvc.primaries import MOST_REASON_CHARACTERS
from parallax.client.answer import ask
from parallax.client.client import OffsetClient, at_region
from parallax.client.credentials import ServiceCredentials
from parallax.domain.ids import ClusterName
from parallax.domain.primary import Change
from parallax.domain.rights import ANYBODY
from parallax.errors import ForbiddenError, InvalidNameError, InvalidOffsetError, UnauthenticatedError
from parallax.identity.door import Door
from parallax.ports.audit import Auditor
from parallax.v1 import offsets_pb2 as pb
from syncjob.cycle import Syncer
from tests.worlds.authority import Authority, Issuer
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, TOPIC, Record, World, Writer
from tests.worlds.sync_bench import P0

STRANGERS = ("nobody", "stranger", "reader", "rival")
"""Who shows nothing, who proves a name without rights, who may read the group, and who may do everything to another one."""

RULES = [
    {"principals": ["sync"], "groups": [".*"], "allow": ["read"]},
    {"principals": ["reader"], "groups": [GROUP], "allow": ["read"]},
    {"principals": ["reporter"], "groups": [GROUP], "allow": ["report"]},
    {"principals": ["operator"], "groups": [GROUP], "allow": ["administer"]},
    {"principals": ["rival"], "groups": ["rivals-.*"], "allow": ["administer"]},
]
CONSUMED = 100


@dataclass
class Bank:
    """Two regions whose aggregate clusters hold the same 200 records of each source; the group has read the first 100 in a."""

    world: World
    served: Served
    syncer: Syncer
    issuer: Issuer

    def client(self, who: str) -> OffsetClient:
        return client_of(self.served, self.issuer, who)

    def headers(self, who: str) -> dict[str, str]:
        return {} if who == "nobody" else {"Authorization": f"Bearer {lasting(self.issuer, who)}"}

    def cycles(self) -> None:
        for _ in range(3):
            self.world.now_ms += 1_000
            report = self.syncer.cycle()
            assert not report.failures, report.failures

    def lost(self) -> int:
        """Records that nobody has read, and that the group passes over in b as things are now."""
        with self.client("sync") as client:
            answer = client.get_failover_offset(GROUP, TOPIC, 0, origin=at_region("a"), to=at_region("b"))
        at_b = self.world.records("b")
        skipped = {
            at_b[offset] for ranges in answer.skip_ranges for offset in range(ranges.start, ranges.end)
        }
        passed = skipped | set(at_b[: answer.resume_offset])
        published = self.world.cluster("b").commits.get(GROUP, {}).get(P0)
        if published is not None:
            passed |= set(at_b[: published.next_offset])
        return len(passed - self._consumed())

    def _consumed(self) -> set[Record | None]:
        return set(self.world.records("a")[:CONSUMED])

    def nothing_was_recorded(self) -> bool:
        store = self.world.groups
        reported = [item for item in store.observed(GROUP, ClusterName("aggregate-a")) if item.reported]
        return not (reported or store.progress(GROUP, TOPIC) or self.world.audit.entries())


def lasting(issuer: Issuer, who: str) -> str:
    """A token that outlives the test, however slow the machine is."""
    return issuer.token(who, exp=2**31)


def client_of(served: Served, issuer: Issuer, who: str) -> OffsetClient:
    credentials = None if who == "nobody" else ServiceCredentials(token=lasting(issuer, who))
    return OffsetClient([served.target], timeout_ms=60_000, credentials=credentials)


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    issuer, keys = Issuer(), tmp_path / "keys.json"
    keys.write_bytes(issuer.document())
    jwt = {"issuer": issuer.name, "audience": issuer.audience, "jwks": str(keys)}
    auth = {"mode": "jwt", "jwt": jwt, "rules": RULES}
    with ExitStack() as stack:
        world = consumed_world({"auth": auth})
        served = stack.enter_context(serving(world))
        syncer = syncer_of(world, stack.enter_context(client_of(served, issuer, "sync")))
        stack.callback(syncer.close)
        yield Bank(world, served, syncer, issuer)


def consumed_world(service: dict[str, Any]) -> World:
    world = World(("a", "b"), service={"cluster_timeout_ms": 5_000, **service})
    world.let_write()
    for target, order in (("a", "ab"), ("b", "ba")):
        for _ in range(20):
            for source in order:
                world.copy(source, target, 10)
    world.watermarks()
    world.commit("a", CONSUMED)
    return world


def syncer_of(world: World, client: OffsetClient) -> Syncer:
    return Syncer(
        world.config,
        [cluster for cluster in world.clusters.values() if isinstance(cluster, Writer)],
        world.groups,
        world.primaries,
        partial(ask, client),
        now_ms=lambda: world.now_ms,
        auditor=Auditor(world.audit, lambda: world.now_ms),
        clock=lambda: world.now_ms / 1_000,
    )


def move(consumed: int) -> pb.PartitionMove:
    """A move to the beginning of a, by which so many records of each source were consumed before."""
    return pb.PartitionMove(
        topic=TOPIC,
        partition=0,
        target_topic_id="aggregate-a-1",
        resume_offset=0,
        progress=[
            pb.SourceProgress(
                region=region,
                source_topic_id=f"regional-{region}-1",
                source_next_offset=consumed,
                source_leader_epoch=0,
            )
            for region in "ab"
        ],
    )


def invent_a_move(client: OffsetClient) -> None:
    """Rows tell of 200 records of each source, so that nothing but the caller's name is wrong with it."""
    client.report_positions(GROUP, at=at_region("a"), moves=[move(200)])


def invent_a_position(client: OffsetClient) -> None:
    """All that the log of a holds, just before that cluster is lost."""
    position = pb.PartitionPosition(topic=TOPIC, partition=0, next_offset=400)
    client.report_positions(GROUP, at=at_region("a"), positions=[position])


def lose_region_a(bank: Bank) -> None:
    bank.world.cluster("a").away = True
    bank.world.now_ms += 500


ATTACKS: Sequence[tuple[Callable[[OffsetClient], None], Callable[[Bank], None]]] = [
    (invent_a_move, Bank.cycles),
    (invent_a_position, lose_region_a),
]
"""What is reported, and what happens then."""


@pytest.mark.parametrize(("attack", "then"), ATTACKS)
def test_no_report_of_others_makes_a_group_lose_records(
    bank: Bank, attack: Callable[[OffsetClient], None], then: Callable[[Bank], None]
) -> None:
    bank.cycles()
    for who in STRANGERS:
        refusal = UnauthenticatedError if who == "nobody" else ForbiddenError
        with bank.client(who) as client, pytest.raises(refusal):
            attack(client)
    assert bank.nothing_was_recorded()
    then(bank)
    assert bank.lost() == 0
    assert bank.world.cluster("b").commits[GROUP][P0].next_offset == CONSUMED


@pytest.mark.parametrize(("attack", "then"), ATTACKS)
def test_where_nobody_is_asked_it_would(
    bank: Bank,
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[OffsetClient], None],
    then: Callable[[Bank], None],
) -> None:
    monkeypatch.setattr(Door, "let_in", lambda *_: ANYBODY)
    bank.cycles()
    with bank.client("nobody") as client:
        attack(client)
    then(bank)
    assert bank.lost() == 300


def test_nor_does_what_its_own_members_can_not_have_seen(bank: Bank) -> None:
    with bank.client("reporter") as client:
        with pytest.raises(InvalidOffsetError, match="the rows tell of it up to 200"):
            client.report_positions(GROUP, at=at_region("a"), moves=[move(201)])
        beyond = pb.PartitionPosition(topic=TOPIC, partition=0, next_offset=401)
        with pytest.raises(InvalidOffsetError, match="beyond the end of its log in aggregate-a, 400"):
            client.report_positions(GROUP, at=at_region("a"), positions=[beyond])
    assert bank.nothing_was_recorded()
    bank.cycles()
    lose_region_a(bank)
    assert bank.lost() == 0


def send_consumers_away(http: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    change = {"region": "b", "stage": "MOVING", "moving_from": "aggregate-a"}
    return http.put(f"/v1/groups/{GROUP}/primary", json=change, headers=headers)


def test_no_call_of_others_sends_consumers_away(bank: Bank) -> None:
    with bank.served.http() as http:
        for who in (*STRANGERS, "reporter"):
            answer = send_consumers_away(http, bank.headers(who))
            assert (who, answer.status_code) == (who, 401 if who == "nobody" else 403)
            assert http.get("/v1/routes/a->b/topics/nonsense/partitions/0/runs").status_code == 401
    assert bank.nothing_was_recorded()
    with bank.client("reader") as client:
        assert not client.get_primary(GROUP).HasField("decision")


def test_where_nobody_is_asked_they_would_go(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Door, "let_in", lambda *_: ANYBODY)
    with bank.served.http() as http:
        assert send_consumers_away(http, {}).json()["decision"]["stage"] == "MOVING"


def test_a_reason_of_5_mb_is_kept_by_neither_api(bank: Bank) -> None:
    reason = "x" * 5_000_000
    with bank.served.http() as http:
        answer = http.put(
            f"/v1/groups/{GROUP}/primary",
            json={"region": "b", "reason": reason},
            headers=bank.headers("operator"),
        )
        assert (answer.status_code, answer.json()["code"]) == (413, "LIMIT")
    with bank.client("operator") as client:
        change = Change(GROUP, bank.world.regions[1], reason=reason)
        with pytest.raises(InvalidNameError, match=f"longer than {MOST_REASON_CHARACTERS:,} characters"):
            client.set_primary(change)
        assert not client.get_primary(GROUP).HasField("decision")
    assert bank.nothing_was_recorded()


def test_nobody_fills_the_store_with_groups_that_are_not_theirs(bank: Bank) -> None:
    with bank.served.http() as http:
        for who in (*STRANGERS, "operator"):
            for number in range(10):
                path = f"/v1/groups/made-up-{number}/primary"
                answer = http.put(path, json={"region": "b"}, headers=bank.headers(who))
                assert answer.status_code == (401 if who == "nobody" else 403)
    assert not bank.world.primaries.assigned_groups()
    assert not bank.world.audit.entries()


def test_groups_that_somebody_made_up_who_may_are_forgotten_in_time(bank: Bank) -> None:
    with bank.served.http() as http:
        for number in range(60):
            path = f"/v1/groups/rivals-{number}/primary"
            answer = http.put(path, json={"region": "b", "disaster": True}, headers=bank.headers("rival"))
            assert answer.status_code == 200
    bank.cycles()
    assert len(bank.world.primaries.assigned_groups()) == 60
    days = bank.world.config.groups.forget_after_days
    for _ in range(2):
        bank.world.now_ms += days * 86_400_000
        bank.cycles()
        bank.cycles()
    assert not bank.world.primaries.assigned_groups()
    with bank.client("rival") as client:
        assert not client.list_primaries().primaries


def test_a_certificate_of_the_same_authority_makes_nobody_an_operator(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, member = authority.server(), authority.client("spiffe://bank/somebody-of-the-bank")
    tls = {
        "certificate_chain": str(server.certificate),
        "private_key": str(server.key),
        "client_ca": str(authority.certificate),
    }
    rules = [{"principals": ["spiffe://bank/operator"], "groups": [".*"], "allow": ["administer"]}]
    world = consumed_world({"tls": tls, "auth": {"mode": "mtls", "rules": rules}})
    shown = ServiceCredentials(ca=authority.certificate, certificate=member.certificate, key=member.key)
    with serving(world) as served:
        with OffsetClient([served.target], timeout_ms=60_000, credentials=shown) as client:
            for attack, _ in ATTACKS:
                with pytest.raises(ForbiddenError):
                    attack(client)
        with served.https(authority.certificate, member) as http:
            assert send_consumers_away(http, {}).status_code == 403
    assert not world.groups.progress(GROUP, TOPIC)
    assert not world.primaries.assigned_groups()
