"""How the batch path's connections prove who they are, at first and again before their time is up (KIP-368).

kafka-python authenticates, and asks its settings for what it needs at that moment. So a password is read from its file for each
authentication, and a token is fetched before one by another thread, while the connections of the loop go on.
"""

from __future__ import annotations

import importlib.util
import ssl
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.net.sasl.oauth import AbstractTokenProvider

from parallax.adapters.kafka.tokens import TokenSource, token_source
from parallax.adapters.kafka.transport import TlsRefusedError
from parallax.adapters.tls import client_context
from parallax.config.security import Security
from parallax.errors import ConfigError

UNWELCOME = (
    ConfigError,
    TlsRefusedError,
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
)
"""What a connection ends with that would end so again at once."""


class _Tokens(AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
    """The tokens as kafka-python asks for them, in the loop's thread: nothing is fetched here."""

    def __init__(self, source: TokenSource) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:
        """The last one."""
        return self._source.known().value

    def extensions(self) -> dict[str, str]:
        """What goes with it."""
        return dict(self._source.known().extensions)


class ClientProof:
    """Of who we are, to one cluster.

    Args:
        security: the cluster's settings.

    Raises:
        ConfigError: what the mechanism needs is not installed.
    """

    def __init__(self, security: Security) -> None:
        self._security = security
        self._tokens = token_source(security)
        if security.sasl_mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
            raise ConfigError(
                "security.sasl_mechanism GSSAPI: the batch path needs the package gssapi (and Kerberos' C library)"
            )

    @property
    def who(self) -> str:
        """What brokers are told, for messages."""
        security = self._security
        if self._tokens is not None:
            of = (
                security.sasl_oauth.client_id if security.sasl_oauth is not None else security.sasl_aws_region
            )
            return f"{security.sasl_mechanism} token of {of!r}"
        return f"{security.sasl_mechanism} user {security.sasl_username!r}"

    def fixed_settings(self) -> dict[str, Any]:
        """kafka-python's settings that hold for as long as the connections."""
        security = self._security
        return {
            "security_protocol": security.protocol,
            "sasl_mechanism": security.sasl_mechanism if self._tokens is None else "OAUTHBEARER",
            "sasl_plain_username": security.sasl_username,
            "sasl_kerberos_service_name": security.sasl_kerberos_service_name,
            "sasl_oauth_token_provider": None if self._tokens is None else _Tokens(self._tokens),
        }

    def tls_context(self) -> ssl.SSLContext:
        """For a new connection.

        Raises:
            ConfigError: a file can't be used.
        """
        security = self._security
        return client_context(
            "security.ssl_*",
            ca=security.ssl_ca_location,
            certificate=security.ssl_certificate_location,
            key=security.ssl_key_location,
            key_password=security.key_password(),
            verify_hostname=security.ssl_verify_hostname,
        )

    def attend(self, connection: Any, net: Any) -> None:
        """Have whatever the connection is about to prove itself by ready whenever it does."""
        authenticate = connection._sasl_authenticate  # noqa: SLF001 - kafka-python has no other door

        async def prepared(timeout_at: float | None = None) -> None:
            if self._tokens is not None:
                await self._fetched(self._tokens, net)
            else:
                connection.config["sasl_plain_password"] = self._security.password()
            await authenticate(timeout_at)

        connection._sasl_authenticate = prepared  # noqa: SLF001 - as above

    @staticmethod
    async def _fetched(source: TokenSource, net: Any) -> None:
        heard = Future()

        def stop_waiting() -> None:
            if not heard.is_done:
                heard.success(None)

        def tell() -> None:
            try:
                net.call_soon_threadsafe(stop_waiting)
            except RuntimeError:  # the loop was closed meanwhile
                return

        source.ask(tell)
        await heard
