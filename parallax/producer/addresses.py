"""Where the regional clusters are: as given, or as an offset service describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import structlog

from parallax.errors import ParallaxError
from parallax.producer.ports import RegionService
from parallax.producer.settings import Config, read_clusters
from parallax.v1 import primaries_pb2 as pb

_log = structlog.get_logger("parallax.failover_producer")

_REFRESH_WITHIN_MS = 2_000


class Addresses(Protocol):
    """The clusters by region, the preferred first where the application names no order."""

    @property
    def clusters(self) -> Mapping[str, Config]:
        """Settings of each regional cluster, as last known."""

    def refresh(self) -> None:
        """Ask again, if there is somebody to ask; a silent service changes nothing."""

    def close(self) -> None:
        """Ask no more."""


class GivenAddresses:
    """Clusters that the application names.

    Raises:
        ProducerConfigError: one without an address, or with settings that have to be the same everywhere.
    """

    def __init__(self, clusters: Mapping[str, str | Mapping[str, object]]) -> None:
        self.clusters: Mapping[str, Config] = read_clusters(clusters)

    def refresh(self) -> None:
        """Nothing to ask."""

    def close(self) -> None:
        """Nothing to close."""


class DescribedAddresses:
    """Clusters as ``DescribeRegions`` tells them: asked once at the start, then kept for when no service answers.

    Descriptions carry no secrets, so what the application configures goes before what they say of security.

    Args:
        service: the offset services.
        own: what the application configures.
        made_here: the client is nobody else's, and is closed.

    Raises:
        UnavailableError: no service answered the first time.
    """

    def __init__(self, service: RegionService, own: Config, *, made_here: bool = False) -> None:
        self._service = service
        self._made_here = made_here
        self._own = own
        self.clusters: Mapping[str, Config] = self._read(service.describe_regions())
        self._away_logged = False

    def refresh(self) -> None:
        """Ask again; what was known stays where no service answers."""
        try:
            description = self._service.describe_regions(timeout_ms=_REFRESH_WITHIN_MS)
        except ParallaxError as error:
            if not self._away_logged:
                _log.info("producer_regions_not_described", code=error.code, detail=str(error))
            self._away_logged = True
            return
        self._away_logged = False
        self.clusters = self._read(description)

    def close(self) -> None:
        """Close the client, unless the application may still use it."""
        if self._made_here:
            self._service.close()

    def _read(self, description: pb.DescribeRegionsResponse) -> Mapping[str, Config]:
        return {
            item.region: self._settings(item.regional)
            for item in description.regions
            if item.HasField("regional")
        }

    def _settings(self, cluster: pb.ClusterDescription) -> Config:
        security = {
            "security.protocol": cluster.security_protocol,
            # To librdkafka such a token is one of OAUTHBEARER's, which the application's `oauth_cb` signs.
            "sasl.mechanism": "OAUTHBEARER"
            if cluster.sasl_mechanism == "AWS_MSK_IAM"
            else cluster.sasl_mechanism,
        }
        named = {key: value for key, value in security.items() if value and key not in self._own}
        if "sasl.mechanisms" in self._own:
            named.pop("sasl.mechanism", None)
        return {"bootstrap.servers": cluster.bootstrap_servers, **named}
