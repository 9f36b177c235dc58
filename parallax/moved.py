"""Import paths of before the first release: whoever still uses one is told the new one. Gone with the next release."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

NEW_PATHS = {
    "offsetsvc.aio_failover_consumer": "from parallax import AIOFailoverConsumer",
    "offsetsvc.client": "from parallax import OffsetClient",
    "offsetsvc.consumer": "from parallax import FailoverConsumer, FailoverEvent, StaleMessageError, ...",
    "offsetsvc.failover_consumer": "from parallax import FailoverConsumer",
    "offsetsvc.failover_producer": "from parallax import FailoverProducer",
    "offsetsvc.pb": "from parallax.v1 import offsets_pb2, offsets_pb2_grpc",
    "offsetsvc.producer": "from parallax import FailoverProducer, ProducerEvent, DeliveryReport, ...",
    "parallax.domain.errors": "from parallax import ParallaxError",
    "parallax.runtime.config": "from parallax.config.config import load",
}


class OldPaths(MetaPathFinder):
    """Asked last of all finders, so for nothing that exists."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002 - as above
    ) -> None:
        """Find nothing.

        Raises:
            ImportError: the module stands elsewhere now; the message says where.
        """
        if fullname in NEW_PATHS:
            raise ImportError(f"{fullname} has moved: {NEW_PATHS[fullname]}", name=fullname)


sys.meta_path.append(OldPaths())
