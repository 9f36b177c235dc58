"""An issuer's public keys (RFC 7517), from a file or an address, and found again when they change."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from parallax.config.auth import Jwt
from parallax.errors import ConfigError, UnauthenticatedError, UnavailableError
from parallax.runtime.fetching import fetch
from parallax.runtime.files import Reread

_log = structlog.get_logger(__name__)

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ALGORITHMS = frozenset({*_RSA, *_CURVES.values(), "EdDSA"})
"""What a token may be signed with: public keys alone. ``none`` and shared secrets prove nothing here."""

_LEAST_RSA_BITS = 2_048
_MOST_BYTES = 1024 * 1024
_REFRESH_S = 300.0
"""Keys that an issuer has taken back are refused so much later at most."""
_MAX_AGE_S = 86_400.0
_FLOOR_S = 1.0
"""Between two fetches, whatever tokens name: whoever sends nonsense makes no load for the issuer."""
_PATIENCE_S = 3.0
_FETCH_TIMEOUT_S = 5.0
"""For each answer of the network's, and for all of them: an issuer that drips keeps no key alive that it took back."""
_MOST_WAITING = 4
"""Calls that wait for a fetch; others are told to come back."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key of the issuer's.

    Attributes:
        key_id: its ``kid``; None: it has none.
        key: what PyJWT takes.
        algorithms: what it may have signed with; a subset of `ALGORITHMS`.
    """

    key_id: str | None
    key: Any
    algorithms: frozenset[str]


Keys = tuple[SigningKey, ...]


class KeySet(Protocol):
    """Where keys are found. Safe to use from many threads."""

    def find(self, key_id: str | None) -> Keys:
        """The keys of that id; all that there are for a token without. None: the issuer has none, as of this call.

        Raises:
            UnavailableError: they could not be fetched yet, or anew for an id that is not known; the same call may
                succeed later.
            UnauthenticatedError: those that are known are too old to prove anything.
        """

    def age_ms(self) -> float | None:
        """How long ago keys behind an address were fetched; None: there are none yet, or they are in a file."""


def key_set(settings: Jwt) -> KeySet:
    """The keys of an issuer.

    Raises:
        ConfigError: a file can't be read or holds no key.
    """
    if "://" not in settings.jwks:
        return FileKeys(settings.jwks)
    return FetchedKeys(fetch_from(settings.jwks, settings.jwks_ca), max_age_s=float(settings.keys_max_age_s))


class FileKeys:
    """Keys in a file, which is read again when it changes."""

    def __init__(self, path: str) -> None:
        self._keys = Reread([path], lambda: _from_file(path))

    def find(self, key_id: str | None) -> Keys:
        """See `KeySet.find`."""
        return _named(self._keys.get(), key_id)

    def age_ms(self) -> None:
        """None: a file is there, or it is not."""


class FetchedKeys:
    """Keys behind an address.

    A call waits for a fetch only if its token names a key that is not known, and not for long. That there is no such key
    is said by a document alone that was fetched after the call came: an issuer that changes its key and signs with the new
    one at once is believed, whatever others have asked for in the moment before.

    Args:
        fetch: fetches the document; raises whatever it likes.
        max_age_s: keys that could not be fetched again for so long prove nobody any more.
        clock: seconds, monotonic.
        patience_s: how long a call may wait.
        rest: sleeps so many seconds, until the next fetch is allowed.
        told_by: the setting that ``max_age_s`` comes from, for errors.
    """

    def __init__(
        self,
        fetch: Callable[[], bytes],
        *,
        max_age_s: float = _MAX_AGE_S,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = _PATIENCE_S,
        rest: Callable[[float], None] = time.sleep,
        told_by: str = "service.auth.jwt.keys_max_age_s",
    ) -> None:
        self._fetch, self._rest, self._told_by = fetch, rest, told_by
        self._max_age_s = max_age_s
        self._clock = clock
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self._fetched: tuple[float, Keys] | None = None
        self._began_s = float("-inf")
        self._under_way: threading.Event | None = None
        self._problem = "the first answer is awaited"
        self._refresh(after_s=0.0)

    def find(self, key_id: str | None) -> Keys:
        """See `KeySet.find`."""
        self._refresh(after_s=_REFRESH_S)
        keys, age_s = self._known()
        found = _named(keys, key_id) if age_s <= self._max_age_s else ()
        if found:
            return found
        is_fresh = self._fetched_after(self._clock(), key_id)
        keys, age_s = self._known()
        if self._max_age_s < age_s < float("inf"):
            raise UnauthenticatedError(
                f"the issuer's keys are {age_s:.0f} s old and may be {self._max_age_s:.0f} s at most "
                f"({self._told_by}): they can't be fetched again: {self._problem}"
            )
        found = _named(keys, key_id)
        if not found and not is_fresh:
            raise UnavailableError(f"the issuer's keys can't be fetched: {self._problem}")
        return found

    def age_ms(self) -> float | None:
        """See `KeySet.age_ms`. Whoever asks keeps them young, though no call comes."""
        self._refresh(after_s=_REFRESH_S)
        keys, age_s = self._known()
        return age_s * 1_000 if keys else None

    def _known(self) -> tuple[Keys, float]:
        """The keys and their age in seconds; none of an endless age before the first."""
        fetched = self._fetched
        return ((), float("inf")) if fetched is None else (fetched[1], self._clock() - fetched[0])

    def _fetched_after(self, came_s: float, key_id: str | None) -> bool:
        """Wait for keys that are younger than a call, or for the one that it needs; False: they can't be fetched.

        Raises:
            UnavailableError: the issuer is slow, or enough others wait for it.
        """
        if not self._waiting.acquire(blocking=False):
            raise UnavailableError("the issuer's keys are being fetched: try again")
        try:
            give_up_at_s = time.monotonic() + self._patience_s
            while self._began_s < came_s or self._under_way is not None:
                fetching = self._refresh(after_s=_FLOOR_S)
                if fetching is None:
                    self._rest(max(0.0, self._began_s + _FLOOR_S - self._clock()))
                elif not fetching.wait(max(0.0, give_up_at_s - time.monotonic())):
                    raise UnavailableError("the issuer of tokens is slow to give its keys: try again")
                if _named(self._known()[0], key_id):
                    break
            return self._fetched is not None and self._fetched[0] >= came_s
        finally:
            self._waiting.release()

    def _refresh(self, *, after_s: float) -> threading.Event | None:
        """Begin a fetch unless the last one began less than so long ago; the end of the one under way, if any."""
        with self._lock:
            if self._under_way is not None or self._clock() - self._began_s < after_s:
                return self._under_way
            self._began_s = self._clock()
            self._under_way = ended = threading.Event()
        threading.Thread(target=self._fetch_keys, args=(ended,), name="jwks", daemon=True).start()
        return ended

    def _fetch_keys(self, ended: threading.Event) -> None:
        began_s = self._clock()
        try:
            keys = keys_of(self._fetch())
        except Exception as error:  # noqa: BLE001 - whatever the issuer does, the keys from before stand for their time
            self._problem = str(error) or type(error).__name__
            known, age_s = self._known()
            _log.warning(
                "jwks_not_fetched",
                error=self._problem,
                keys=len(known),
                usable=bool(known) and age_s <= self._max_age_s,
            )
        else:
            self._fetched, self._problem = (began_s, keys), "the next answer is awaited"
        finally:
            with self._lock:
                self._under_way = None
            ended.set()


def keys_of(document: bytes) -> Keys:
    """The usable keys of a document; others (shared secrets, for encryption, too short, unknown) are passed over.

    Raises:
        ValueError: it is no key set, or has no usable key.
    """
    try:
        listed = json.loads(document)["keys"]
        found = tuple(key for entry in listed if (key := _signing_key(entry)) is not None)
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a key set (RFC 7517): {error!r}") from error
    if not found:
        raise ValueError("the key set has no public key that signs")
    return found


def fetch_from(
    address: str, authority: str | None, *, told_by: str = "service.auth.jwt.jwks_ca"
) -> Callable[[], bytes]:
    """Fetches the document behind an address, without following it elsewhere.

    Args:
        address: of the document.
        authority: PEM file of whom to trust; None: as the system does.
        told_by: the setting that names it, for errors.

    Raises:
        ConfigError: the authority can't be read.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise ConfigError(f"{told_by}: {authority}: cannot be read: {error}") from error

    def fetch_keys() -> bytes:
        request = urllib.request.Request(address)  # noqa: S310 - https, or loopback
        return fetch(request, context=context, within_s=_FETCH_TIMEOUT_S, most_bytes=_MOST_BYTES)

    return fetch_keys


def _from_file(path: str) -> Keys:
    try:
        return keys_of(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"service.auth.jwt.jwks: {path}: {error}") from error


def _named(keys: Keys, key_id: str | None) -> Keys:
    return keys if key_id is None else tuple(key for key in keys if key.key_id == key_id)


def _signing_key(entry: Mapping[str, Any]) -> SigningKey | None:
    if entry.get("use", "sig") != "sig" or entry.get("kty") not in {"RSA", "EC", "OKP"}:
        return None
    try:
        key = jwt.PyJWK(dict(entry)).key
    except jwt.PyJWTError:
        return None
    algorithms = _algorithms_of(key)
    if "alg" in entry:
        algorithms &= {entry["alg"]}
    key_id = entry.get("kid")
    return SigningKey(None if key_id is None else str(key_id), key, algorithms) if algorithms else None


def _algorithms_of(key: object) -> frozenset[str]:
    """What a public key may sign with; nothing for a private one, which has no place in such a document."""
    if isinstance(key, RSAPublicKey):
        return _RSA if key.key_size >= _LEAST_RSA_BITS else frozenset()
    if isinstance(key, EllipticCurvePublicKey):
        return frozenset({_CURVES[key.curve.name]}) if key.curve.name in _CURVES else frozenset()
    return frozenset({"EdDSA"}) if isinstance(key, Ed25519PublicKey | Ed448PublicKey) else frozenset()
