"""Names in requests as names that are configured, or an error that says which are."""

from __future__ import annotations

from parallax.config.config import Config
from parallax.domain.ids import ClusterName, GroupName, RegionName, Route, aggregate_cluster, is_aggregate
from parallax.errors import InvalidNameError, UnknownRouteError

MOST_GROUP_BYTES = 32_767
"""Of a string in Kafka's protocol."""


class Places:
    """The regions, clusters and routes of one configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def cluster(self, *, region: str = "", cluster: str = "", what: str) -> ClusterName:
        """The aggregate cluster of a region, or the one of that name.

        Raises:
            InvalidNameError: neither is named, or the cluster is not an aggregate cluster.
            UnknownRegionError: it is not configured.
        """
        if bool(region) == bool(cluster):
            raise InvalidNameError(f"{what}: name a region or a cluster; clusters: {self._listed()}")
        name = aggregate_cluster(RegionName(region)) if region else ClusterName(cluster)
        self._config.cluster(name)
        if not is_aggregate(name):
            raise InvalidNameError(
                f"{what}: {name} is a regional cluster; groups move between aggregate clusters: {self._listed()}"
            )
        return name

    def origin_of(self, destination: ClusterName) -> ClusterName:
        """The only other aggregate cluster.

        Raises:
            InvalidNameError: there is none, or more than one.
        """
        others = [name for name in self._config.aggregate_clusters() if name != destination]
        if len(others) != 1:
            raise InvalidNameError(
                f"from: name where the group comes from; {len(others)} clusters are possible: "
                f"{', '.join(others) or 'none'}"
            )
        return others[0]

    def route(self, text: str) -> Route:
        """The configured route written ``a->b``.

        Raises:
            InvalidNameError: it is not written so.
            UnknownRouteError: it is not configured.
        """
        route = Route.parse(text)
        routes = self._config.all_routes()
        if route not in routes:
            raise UnknownRouteError(
                f"unknown route '{route}'; configured: {', '.join(str(known) for known in routes) or 'none'}"
            )
        return route

    def _listed(self) -> str:
        return ", ".join(self._config.aggregate_clusters()) or "none"


def group_named(text: str) -> GroupName:
    """A group name.

    Raises:
        InvalidNameError: it is empty, or longer than Kafka takes.
    """
    if not text:
        raise InvalidNameError("group: the name is empty")
    if len(text) > MOST_GROUP_BYTES or len(text.encode()) > MOST_GROUP_BYTES:
        raise InvalidNameError(f"group: the name is longer than {MOST_GROUP_BYTES} bytes")
    return GroupName(text)
