"""Where records go: to the present region; into a queue while it is suspected; to the next one when it is down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from parallax.errors import ParallaxError
from parallax.producer.addresses import Addresses
from parallax.producer.delivery import ProducerDelivery
from parallax.producer.events import DownReason, ProducerEvent, ProducerEventKind
from parallax.producer.ports import ClusterTopics
from parallax.producer.regions import Due
from parallax.producer.settings import Config, ProducerPolicies, ProducerSettings
from parallax.producer.site import ProducerSite, not_made

SUSPECT_AFTER_S = 1.0
"""Without an acknowledgement for so long, and beyond the linger time, a region is suspected."""
TAKE_BACK_WITHIN_S = 1.0
"""librdkafka reports purged records at once; what comes later is sent later."""
_SLICE_S = 0.05


class ProducerEngine:
    """Decides where records go, in whichever thread comes by: those that poll, or the pilot's, which alone moves and returns.

    Args:
        delivery: the records.
        settings: what the application configured.
        policies: where Kafka leaves a choice.
        addresses: where the regional clusters are.
        clock: seconds, monotonic.

    Attributes:
        delivery: the records.
        turned_at_s: when the application last polled.
    """

    def __init__(
        self,
        delivery: ProducerDelivery,
        settings: ProducerSettings,
        policies: ProducerPolicies,
        addresses: Addresses,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.delivery = delivery
        self._settings = settings
        self._policies = policies
        self._addresses = addresses
        self._clock = clock
        self._stuck = False
        self._idle: list[ProducerSite] = []
        self.turned_at_s = clock()

    # --- for the application ------------------------------------------------------------------------------

    def turn(self, timeout_s: float, *, flush: bool = False) -> int:
        """Serve the inner producers for a while, decide, and call the application.

        Returns:
            How many callbacks were called.
        """
        self.turned_at_s = self._clock()
        self.tick()
        self.pump()
        served = self.delivery.ledger.serve()
        site, wait_s = self.delivery.site, 0.0 if served else timeout_s
        if flush and site.outstanding:
            site.inner.flush(wait_s)
        else:
            site.inner.poll(wait_s)
        return served + self.delivery.ledger.serve()

    def close(self) -> list[ProducerSite]:
        """Take no more records. The inner producers are the caller's to close."""
        with self.delivery.lock:
            self.delivery.closed = True
            self._addresses.close()
            sites, self._idle = [self.delivery.site, *self.delivery.others, *self._idle], []
            return sites

    def set_credentials(self, username: str, password: str) -> None:
        """Authenticate so from now on, everywhere."""
        with self.delivery.lock:
            self.delivery.check_open()
            before = self._settings.credentials
            self._settings.credentials = {"sasl.username": username, "sasl.password": password}
            try:
                for site in (self.delivery.site, *self.delivery.others):
                    site.inner.set_sasl_credentials(username, password)
            except Exception:  # as where it is no login at all
                self._settings.credentials = before
                raise

    def problems(self) -> dict[str, ParallaxError]:
        """What keeps each region from taking records, as last checked."""
        with self.delivery.lock:
            return self.delivery.regions.problems()

    # --- for the pilot ------------------------------------------------------------------------------------

    def probes_due(self) -> list[tuple[Due, Config]]:
        """Probes to be made now, each with the cluster's settings."""
        with self.delivery.lock:
            clusters = self._addresses.clusters
            return [
                (due, self._settings.for_cluster(clusters[due.region]))
                for due in self.delivery.regions.due(self._clock(), self.delivery.site, clusters)
            ]

    def probed(self, due: Due, asked_at_s: float, result: ClusterTopics | ParallaxError) -> None:
        """A probe has ended."""
        with self.delivery.lock:
            self.delivery.regions.probed(due, asked_at_s, result, self.delivery.site.region)

    def refresh(self) -> None:
        """Ask again where the clusters are, unless something is more urgent."""
        if self.delivery.site.suspected_at_s is None:
            self._addresses.refresh()

    def pump(self) -> None:
        """Take what all inner producers have to say, without waiting."""
        with self.delivery.lock:
            sites = [self.delivery.site, *self.delivery.others]
        for site in sites:
            site.inner.poll(0)

    def let_go(self) -> None:
        """Drop inner producers that owe nothing any more.

        Each goes with its last reference, in a thread of its own: librdkafka waits for its own threads, and one of
        these may be resolving the name of a dead cluster. It is not closed by hand, since some thread of the
        application may still be in a call of it.
        """
        with self.delivery.lock:
            idle, self._idle = self._idle, []
        while idle:
            region = idle[-1].region
            thread = threading.Thread(target=list[ProducerSite].clear, args=([idle.pop()],), daemon=True)
            thread.name = f"parallax-let-go-{region}"
            thread.start()

    # --- deciding -----------------------------------------------------------------------------------------

    def tick(self, *, make: bool = False) -> None:
        """Look at the present region; hand over and expire what is due, and with ``make`` move or return.

        To make an inner producer may take seconds, where an issuer of tokens is away: the pilot does so, without the lock.
        """
        fresh = None
        while fresh is None:
            now = self._clock()
            with self.delivery.lock:
                if self.delivery.closed or self.delivery.moving:
                    return
                site, login = self.delivery.site, self._settings.credentials
                reason, target = self._judged(site, now)
                if reason is None or target is None:
                    self._stay(site, reason, now)
            if target is None or not make:
                return
            fresh = self._site_at(target, now)
        self._install(site, fresh, login)

    def _install(self, site: ProducerSite, fresh: ProducerSite, login: Mapping[str, str]) -> None:
        """Let records go to a new inner producer, unless something has changed while it was made with that login."""
        now = self._clock()
        with self.delivery.lock:
            reason, target = self._judged(site, now)
            if self.delivery.closed or target != fresh.region or self._settings.credentials is not login:
                self._idle.append(fresh)
                return
            if reason is None:
                self._return(site, fresh, now)
                return
            held, self.delivery.taken_back = self.delivery.ledger.held_records, 0
            self.delivery.moving = True
            self.delivery.site = fresh
            self.delivery.others.append(site)
            site.take_back()
        try:
            while site.outstanding and self._clock() - now < TAKE_BACK_WITHIN_S:
                site.inner.poll(_SLICE_S)
        finally:
            with self.delivery.lock:
                self._moved(site, fresh, reason, held)

    def _judged(self, site: ProducerSite, now: float) -> tuple[DownReason | None, str | None]:
        """Why the present region is down, None if it is not, and where records had better go, None if they stay."""
        regions, clusters = self.delivery.regions, self._addresses.clusters
        if site.silent_s(now) >= SUSPECT_AFTER_S + self._settings.linger_ms / 1_000:
            self.delivery.suspect(site, now)
        since = site.suspected_at_s
        if since is not None and regions.answered_since(site.region, since):
            site.answers()
        reason = regions.down(site, now)
        if reason is None:
            return None, regions.better(site.region, clusters, now)
        return reason, regions.candidate(site, clusters, site.suspected_at_s)

    def _site_at(self, region: str, now: float) -> ProducerSite | None:
        try:
            return self.delivery.new_site(region)
        except Exception as failure:  # noqa: BLE001 - whatever it is, records go to another region or are told to be stuck
            with self.delivery.lock:
                present = self.delivery.site.region
                self.delivery.regions.unusable(region, now, not_made(failure), present)
            return None

    def _moved(self, old: ProducerSite, fresh: ProducerSite, reason: DownReason, held: int) -> None:
        now = self._clock()
        self.delivery.moving = self._stuck = False
        self.delivery.regions.moved(now)
        self.delivery.ledger.moves += 1
        self.delivery.tell(
            ProducerEvent(
                ProducerEventKind.MOVED,
                fresh.region,
                from_region=old.region,
                reason=reason,
                taken_back_records=self.delivery.taken_back,
                held_records=held,
            )
        )
        self.delivery.hand_over(now)

    def _stay(self, site: ProducerSite, reason: DownReason | None, now: float) -> None:
        clusters = self._addresses.clusters
        if reason is None:
            if self._stuck and site.suspected_at_s is None:
                self._stuck = False
                self.delivery.tell(ProducerEvent(ProducerEventKind.UNSTUCK, site.region))
        elif self.delivery.regions.all_asked_since(site.failed_at_s or site.suspected_at_s or now, clusters):
            self._tell_stuck(site, reason)
            if reason is DownReason.TIMED_OUT:
                site.forgive()  # nobody else can: what comes may do better here than the record that failed
        self.delivery.expire(now)
        self.delivery.hand_over(now)
        self._look_after_others(now)

    def _tell_stuck(self, site: ProducerSite, reason: DownReason) -> None:
        if not self._stuck:
            self._stuck = True
            problems = self.delivery.regions.problems()
            why = "; ".join(str(error) for name, error in problems.items() if name != site.region)
            held = self.delivery.ledger.held_records
            self.delivery.tell(
                ProducerEvent(
                    ProducerEventKind.STUCK, site.region, reason=reason, held_records=held, message=why
                )
            )

    def _return(self, site: ProducerSite, fresh: ProducerSite, now: float) -> None:
        """Nothing is wrong with the region that is left: it acknowledges what it has in its own time."""
        self.delivery.site = fresh
        self.delivery.others.append(site)
        self.delivery.regions.returned(now)
        self.delivery.ledger.returns += 1
        self.delivery.tell(ProducerEvent(ProducerEventKind.RETURNED, fresh.region, from_region=site.region))

    def _look_after_others(self, now: float) -> None:
        for site in list(self.delivery.others):
            patience_ms = self._policies.stalled_after_ms
            if site.suspected_at_s is not None:
                patience_ms = min(patience_ms, self._policies.unreachable_after_ms)
            if not site.left and (site.silent_s(now) * 1_000 >= patience_ms or site.failure):
                site.take_back()
            if site.outstanding == 0:
                self.delivery.others.remove(site)
                self._idle.append(site)
