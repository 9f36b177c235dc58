"""How our own commands and jobs prove to the offset services who they are."""

from __future__ import annotations

from pathlib import Path

import grpc

from parallax.config.config import Tls
from parallax.errors import ConfigError


def client_credentials(tls: Tls | None) -> grpc.ChannelCredentials | None:
    """The services' own certificate is what their clients here trust, and show where they are asked for one.

    Raises:
        ConfigError: a file can't be read.
    """
    if tls is None:
        return None
    try:
        chain = Path(tls.certificate_chain).read_bytes()
        key = Path(tls.private_key).read_bytes() if tls.client_ca is not None else None
    except OSError as error:
        raise ConfigError(f"service.tls: {error.filename}: cannot be read: {error.strerror}") from error
    return grpc.ssl_channel_credentials(chain, key, chain if key is not None else None)
