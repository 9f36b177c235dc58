"""TLS as a client: whom to trust, what to show, and what it means when one side does not accept the other."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Callable, Sequence

from parallax.errors import ConfigError
from parallax.runtime.files import Reread

_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
"""OpenSSL's numbers of what is wrong with a certificate; nearly all others say that nobody trusted has signed it."""

_NOT_OURS = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
)
"""Parts of the alerts by which the other side refuses our certificate, or that there is none."""

_REASON = re.compile(r"\[SSL: ([A-Z0-9_]+)\]")
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})


def client_context(
    where: str,
    *,
    ca: str | None,
    certificate: str | None,
    key: str | None,
    key_password: str | None,
    verify_hostname: bool,
) -> ssl.SSLContext:
    """What a connection is opened with. Files are read now.

    Args:
        where: the part of the configuration, for messages.
        ca: PEM file of trusted authorities; None: those of the system.
        certificate: PEM file to show; None: nothing is shown.
        key: PEM file of its key; None: the certificate's.
        key_password: opens it.
        verify_hostname: the other side's certificate must name its address.

    Raises:
        ConfigError: a file can't be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = verify_hostname
    if ca is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{where}: {ca}: can't be used as certificates of authorities: {_short(error)}"
            ) from None
    if certificate is not None:
        # Without a password OpenSSL would ask for one at the terminal, and wait.
        try:
            context.load_cert_chain(certificate, key, lambda: key_password or "")
        except (OSError, ValueError) as error:
            files = certificate if key is None else f"{certificate} and {key}"
            raise ConfigError(
                f"{where}: {files}: can't be used as certificate and key; a wrong password of the key shows so too: {_short(error)}"
            ) from None
    return context


class CurrentContext:
    """For as long as a client lives: each connection is opened by the files as they are then, or by the last ones that fitted.

    It has of `ssl.SSLContext` what opens connections, for libraries that keep what they are given.

    Args:
        paths: the files.
        make: reads them, as `client_context` does.

    Raises:
        ConfigError: a file can't be used now.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], make: Callable[[], ssl.SSLContext]) -> None:
        self._present = Reread(paths, make)

    @property
    def check_hostname(self) -> bool:
        """Whether the other side's certificate must name its address."""
        return self._present.get().check_hostname

    def wrap_socket(
        self,
        sock: socket.socket,
        *,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | None = None,
    ) -> ssl.SSLSocket:
        """A connection over a socket."""
        return self._present.get().wrap_socket(
            sock,
            server_side=server_side,
            do_handshake_on_connect=do_handshake_on_connect,
            suppress_ragged_eofs=suppress_ragged_eofs,
            server_hostname=server_hostname,
        )


def refusal(error: BaseException) -> str | None:
    """What to say of a handshake in which one side refused the other; None: it failed otherwise, and may work later."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_a_certificate(error.verify_code, error.verify_message)
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
    else:
        # Cassandra's driver raises an OSError of its own instead, with the text of this one at its end.
        _, found, text = str(error).partition("CERTIFICATE_VERIFY_FAILED] certificate verify failed: ")
        if found:
            codes = {"expired": _EXPIRED, "not yet valid": _NOT_YET, "mismatch": _OTHER_NAME}
            code = next((code for word, code in codes.items() if word in text), 0)
            return _of_a_certificate(code, text.partition(" (_ssl")[0])
        reason = "".join(_REASON.findall(str(error))[:1])
    if any(part in reason for part in _NOT_OURS):
        return f"it refuses our certificate, or wants one where none is set ({reason})"
    if reason in _NO_TLS:
        return f"it does not speak TLS there ({reason}): check port and protocol"
    return None


def _of_a_certificate(code: int, text: str) -> str:
    if code == _EXPIRED:
        return "its certificate has expired: renew it there; or this machine's clock is ahead"
    if code == _NOT_YET:
        return "its certificate is not valid yet: this machine's clock is behind, or the issuer's was ahead"
    if code in {_OTHER_NAME, _OTHER_ADDRESS}:
        return f"its certificate is for another name ({text}): use a name that it has, or give it this one"
    return f"its certificate is not signed by an authority that is trusted here ({text}): set the authority's file"


def _short(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM"
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
