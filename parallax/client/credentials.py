"""How a client of the offset services proves who it is, and whom it trusts; read again when files change."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import grpc

from parallax.errors import ConfigError, ParallaxError, UnauthenticatedError
from parallax.runtime.files import Reread, filled

_EARLY_S = 30.0
"""A token is fetched anew so long before it expires: clocks differ, and calls take time."""
_UNREADABLE_FOR_S = 60.0
"""How long a token is used that does not say when it expires."""

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ServiceCredentials:
    """What a client shows, and whom it trusts. Without anything: plain text, and nothing is shown.

    Attributes:
        ca: PEM file of the authorities that sign the services' certificates; None: those of the system, if anything else says
            that there is TLS.
        certificate: PEM file of the client's own certificate and those above it; with ``key``.
        key: PEM file of its key.
        token: a bearer token, or what fetches one. That is called again before its token expires, when a service does not take
            it any more, and by one thread at a time.
        token_file: a file that holds the token, read again when it changes; instead of ``token``.
        token_variable: an environment variable that holds it; instead of ``token``.
        tls: speak TLS although no file is named.
        insecure: send a token in plain text to other machines, too.
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    token: str | Callable[[], str] | None = None
    token_file: str | os.PathLike[str] | None = None
    token_variable: str | None = None
    tls: bool = False
    insecure: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            ConfigError: a certificate without its key, or several tokens.
        """
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("credentials: a certificate and its key go together")
        if sum(item is not None for item in (self.token, self.token_file, self.token_variable)) > 1:
            raise ConfigError("credentials: name one of token, token_file and token_variable")

    def __repr__(self) -> str:
        """Without the token."""
        return f"ServiceCredentials(ca={self.ca!r}, certificate={self.certificate!r}, token_file={self.token_file!r})"


class OpenCredentials:
    """Credentials in use. Safe to share between threads.

    Args:
        settings: what is shown, and whom is trusted.

    Raises:
        ConfigError: a file can't be read.
    """

    def __init__(self, settings: ServiceCredentials, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._fetched: str | None = None
        self._fetched_until_s = 0.0
        files = [path for path in (settings.ca, settings.certificate, settings.key) if path is not None]
        self._channel = Reread(files, self._channel_credentials) if files or settings.tls else None
        path = settings.token_file
        self._token_file = None if path is None else Reread([path], lambda: _text(path).strip())

    def channel(self, target: str, *, with_token: bool = False) -> grpc.ChannelCredentials | None:
        """TLS as the files have it now, the same object while they are the same; None: plain text.

        Args:
            target: ``host:port``.
            with_token: a token will be shown, though we have none of our own.

        Raises:
            ConfigError: a token would cross the network in plain text.
        """
        if self._channel is not None:
            return self._channel.get()
        if (with_token or self._shows_a_token()) and not self._settings.insecure and not _is_loopback(target):
            raise ConfigError(
                f"credentials: the token would go to {target} in plain text: name the authority (ca), or set tls or insecure"
            )
        return None

    def metadata(self) -> Metadata:
        """The headers of a call.

        Raises:
            UnauthenticatedError: there is no token where one should be.
        """
        token = self._token()
        return () if token is None else bearer(token)

    def renew(self, used: Metadata) -> bool:
        """Whether there is another token than the one that was not taken.

        Raises:
            UnauthenticatedError: there is no token where one should be.
        """
        if callable(self._settings.token):
            with self._lock:
                if self._fetched is not None and used == bearer(self._fetched):
                    self._fetched = None
        return self.metadata() != used

    def _shows_a_token(self) -> bool:
        settings = self._settings
        return any(
            item is not None for item in (settings.token, settings.token_file, settings.token_variable)
        )

    def _token(self) -> str | None:
        settings = self._settings
        if self._token_file is not None:
            return self._token_file.get()
        if settings.token_variable is not None:
            found = os.environ.get(settings.token_variable, "").strip()
            if not found:
                raise UnauthenticatedError(f"environment variable {settings.token_variable} holds no token")
            return found
        return self._fetch(settings.token) if callable(settings.token) else settings.token

    def _fetch(self, fetch: Callable[[], str]) -> str:
        with self._lock:
            if self._fetched is None or self._clock() >= self._fetched_until_s:
                try:
                    token = fetch()
                except ParallaxError:
                    raise
                except Exception as error:
                    raise UnauthenticatedError(f"no token could be fetched: {error}") from error
                self._fetched, self._fetched_until_s = token, self._good_until_s(token)
            return self._fetched

    def _good_until_s(self, token: str) -> float:
        """When another one has to be fetched."""
        expires_s = _expiry_s(token)
        now_s = self._clock()
        if expires_s is None:
            return now_s + _UNREADABLE_FOR_S
        # Of a token that lives for less than a minute, the first half is used.
        return max(expires_s - _EARLY_S, now_s + (expires_s - now_s) / 2)

    def _channel_credentials(self) -> grpc.ChannelCredentials:
        settings = self._settings
        authority, key, certificate = (
            None if path is None else filled(path)
            for path in (settings.ca, settings.key, settings.certificate)
        )
        _check(settings)
        return grpc.ssl_channel_credentials(authority, key, certificate)


def bearer(token: str) -> Metadata:
    """The headers that show a token."""
    return (("authorization", f"Bearer {token}"),)


def credentials_of(
    environ: Mapping[str, str], otherwise: ServiceCredentials | None = None
) -> ServiceCredentials | None:
    """What ``PARALLAX_TLS_CA``, ``_CERTIFICATE``, ``_KEY``, ``PARALLAX_TOKEN`` and ``PARALLAX_TOKEN_FILE`` say; None: nothing does.

    Args:
        environ: the variables.
        otherwise: stands where they say nothing: of the authority, of the certificate with its key, of the token.

    Raises:
        ConfigError: they contradict each other.
    """
    ca, certificate, key, token_file = (
        environ.get(f"PARALLAX_{name}") or None
        for name in ("TLS_CA", "TLS_CERTIFICATE", "TLS_KEY", "TOKEN_FILE")
    )
    variable = "PARALLAX_TOKEN" if environ.get("PARALLAX_TOKEN") else None
    said: dict[str, str | None] = {}
    if ca is not None:
        said |= {"ca": ca}
    if certificate is not None or key is not None:
        said |= {"certificate": certificate, "key": key}
    if token_file is not None or variable is not None:
        said |= {"token": None, "token_file": token_file, "token_variable": variable}
    return replace(otherwise or ServiceCredentials(), **said) if said else otherwise  # type: ignore[arg-type] # all are text


def _expiry_s(token: str) -> float | None:
    """When a token expires by its own word, which the service looks at; None: it does not say."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None


def _is_loopback(target: str) -> bool:
    host = target.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check(settings: ServiceCredentials) -> None:
    """Refuse what can't be used, of which gRPC would speak at each connection, and to the standard error alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    path = settings.ca
    try:
        if settings.ca is not None:
            context.load_verify_locations(settings.ca)
        path = settings.certificate
        if settings.certificate is not None:
            context.load_cert_chain(settings.certificate, settings.key, password="")
    except (OSError, ValueError) as error:  # what OpenSSL refuses is an OSError, too
        raise ConfigError(f"credentials: {path}: can't be used (with its key): {error}") from error


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return filled(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text") from error
