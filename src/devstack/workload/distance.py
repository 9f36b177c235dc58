"""The long way between two regions: a replication route that gets only so many bytes a second.

On one machine every route is equally short. A client quota of the source cluster (Kafka's own, by client id) holds
one route back as a narrow link between regions would; nothing else on the machine notices.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from devstack.artifacts import fetch_jars
from devstack.errors import DevstackError
from devstack.java import find_java
from devstack.versions import load_versions

_TIMEOUT_S = 60.0


class NarrowLink:
    """Holds back the clients of one id at one cluster.

    Args:
        bootstrap_servers: the cluster that is read.
        client_id: of the readers.
    """

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._java = find_java()
        self._jars: Path = fetch_jars(load_versions().kafka, self._java, report=lambda _line: None)

    def narrow(self, bytes_per_s: int) -> None:
        """Let them have so many bytes a second from now on.

        Raises:
            DevstackError: the cluster did not take the quota.
        """
        self._alter("--add-config", f"consumer_byte_rate={bytes_per_s}")

    def widen(self) -> None:
        """Let them have all they want again.

        Raises:
            DevstackError: the cluster did not take it.
        """
        self._alter("--delete-config", "consumer_byte_rate")

    def _alter(self, *change: str) -> None:
        command = [
            str(self._java.home / "bin" / "java"),
            *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"),
            *("-cp", f"{self._jars}/*", "kafka.admin.ConfigCommand"),
            *("--bootstrap-server", self._bootstrap_servers, "--alter", *change),
            *("--entity-type", "clients", "--entity-name", self._client_id),
        ]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
        if answer.returncode != 0:
            raise DevstackError(
                f"the quota of client {self._client_id!r} was not set:\n{answer.stdout}{answer.stderr}"
            )
