"""Asks the issuer of people's sign-ins: where they sign in, who they are then, and for newer tokens of theirs."""

from __future__ import annotations

import json
import math
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from authlib.oauth2 import OAuth2Error
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc.errors import JoseError

from console.people import NotSignedInError
from parallax.config.console import ConsoleOidc
from parallax.config.values import is_loopback
from parallax.errors import ConfigError, UnauthenticatedError, UnavailableError
from parallax.identity.certificates import is_a_name
from parallax.identity.key_sets import FetchedKeys, fetch_from
from parallax.identity.tokens import ReadToken, TokenReader
from parallax.runtime.fetching import fetch

ENDED_PATH = "/signed-out"
RETURN_PATH = "/signed-in"
"""Below the console's own address: where the issuer sends people back to."""
_WELL_KNOWN = "/.well-known/openid-configuration"
_ANSWER_S = 5.0
_MOST_BYTES = 256 * 1024
_KEPT_S = 300.0
"""What the issuer tells of itself is asked anew after so long."""
_FAILED_HOLDS_S = 1.0
"""After a failure nobody asks again for so long."""
_MOST_ASKING = 8
"""People for whom the issuer is asked at a time: strangers can make the console ask, and shall not keep all of its threads."""
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")
_UNTOLD_S = 60.0
"""The life of a token of which the issuer does not tell it."""


@dataclass(frozen=True, slots=True)
class Described:
    """What an issuer tells of itself, as far as it is used.

    Attributes:
        keys: where its keys are.
        ends: where people end their session with the issuer; empty: it has no such page.
        takes_secret_in_form: it takes the client's secret as a field of the form.
    """

    authorization: str
    token: str
    keys: str
    ends: str
    takes_secret_in_form: bool


@dataclass(frozen=True, slots=True)
class Grant:
    """What somebody may show to offset services.

    Attributes:
        access: the token.
        good_for_s: from now on.
        refresh: gets another one; empty: nothing does.
    """

    access: str = field(repr=False)
    good_for_s: float
    refresh: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who has signed in.

    Attributes:
        member_of: groups.
    """

    name: str
    member_of: tuple[str, ...]
    grant: Grant


class Issuer:
    """An issuer of OpenID Connect. Safe to use from many threads.

    Nothing is asked before somebody signs in: a console starts while its issuer is away.

    Args:
        settings: which, and who we are there.
        clock: seconds, monotonic.

    Raises:
        ConfigError: the authority can't be read.
    """

    def __init__(self, settings: ConsoleOidc, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        try:
            self._context = ssl.create_default_context(cafile=settings.ca)
        except OSError as error:
            raise ConfigError(f"console.auth.oidc.ca: {settings.ca}: cannot be read: {error}") from error
        self._asking = threading.BoundedSemaphore(_MOST_ASKING)
        self._lock = threading.Lock()
        self._described: tuple[float, Described] | None = None
        self._failed: tuple[float, UnavailableError] | None = None
        self._reader: tuple[str, TokenReader] | None = None

    def sign_in_address(self, *, state: str, nonce: str, verifier: str, anew: bool) -> str:
        """Where somebody signs in.

        Args:
            state: comes back with them.
            nonce: has to stand in their ID token.
            verifier: proves to the issuer that who asks for the token is who has sent them (RFC 7636).
            anew: also if they have signed in there already.

        Raises:
            UnavailableError: the issuer does not answer.
        """
        with self._asked():
            described = self._description()
        client = self._client(described)
        options = {"prompt": "login"} if anew else {}
        address, _ = client.create_authorization_url(
            described.authorization, state=state, code_verifier=verifier, nonce=nonce, **options
        )
        return str(address)

    def sign_out_address(self) -> str:
        """Where somebody ends their session with the issuer; empty: nowhere, or it does not answer."""
        try:
            with self._asked():
                described = self._description()
        except UnavailableError:
            return ""
        if not described.ends:
            return ""
        settings = self._settings
        query = {"client_id": settings.client_id, "post_logout_redirect_uri": settings.url + ENDED_PATH}
        return f"{described.ends}{'&' if '?' in described.ends else '?'}{urlencode(query)}"

    def signed_in(self, code: str, *, nonce: str, verifier: str) -> SignedIn:
        """Who comes back from the issuer with a code.

        Args:
            code: the issuer's.
            nonce: as it was sent.
            verifier: likewise.

        Raises:
            UnauthenticatedError: the issuer does not take it, or its answer proves nobody.
            UnavailableError: the issuer does not answer.
            ConfigError: the issuer does not take the console for its client.
        """
        with self._asked():
            described = self._description()
            answer = self._granted(
                lambda: self._client(described).fetch_token(
                    described.token, grant_type="authorization_code", code=code, code_verifier=verifier
                )
            )
            token = answer.get("id_token")
            if not isinstance(token, str):
                raise UnauthenticatedError("the issuer's answer holds no ID token")
            grant = _grant(answer)
            read = self._reader_of(described).read(token)
        self._check(read, nonce, grant.access)
        return self._named(read.claims, grant)

    def token_of(self, signed_in: SignedIn) -> PersonsToken:
        """What somebody who has signed in shows to offset services."""
        return PersonsToken(signed_in.grant, self.renewed)

    def renewed(self, refresh: str) -> Grant:
        """A newer token of somebody's.

        Raises:
            UnauthenticatedError: they have to sign in again.
            UnavailableError: the issuer does not answer.
            ConfigError: the issuer does not take the console for its client.
        """
        with self._asked():
            described = self._description()
            client = self._client(described)
            client.scope = None  # what was granted before
            return _grant(self._granted(lambda: client.refresh_token(described.token, refresh_token=refresh)))

    @contextmanager
    def _asked(self) -> Iterator[None]:
        if not self._asking.acquire(blocking=False):
            raise UnavailableError("many sign in just now: try again")
        try:
            yield
        finally:
            self._asking.release()

    def _description(self) -> Described:
        """What the issuer tells of itself; while it does not answer, what it told last."""
        with self._lock:
            now_s, known = self._clock(), self._described
            if known is not None and now_s - known[0] < _KEPT_S:
                return known[1]
            if self._failed is None or now_s - self._failed[0] >= _FAILED_HOLDS_S:
                try:
                    found = self._ask()
                except UnavailableError as error:
                    self._failed = self._clock(), error
                else:
                    self._described, self._failed = (now_s, found), None
                    return found
            if known is not None:
                return known[1]
            raise UnavailableError(str(self._failed[1])) from self._failed[1]

    def _ask(self) -> Described:
        issuer = self._settings.issuer
        request = urllib.request.Request(issuer.rstrip("/") + _WELL_KNOWN)  # noqa: S310 - https, or loopback
        try:
            return _described(json.loads(self._fetched(request)), issuer)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UnavailableError(
                f"the issuer of sign-ins can't be asked: {issuer}: {_told(error)}"
            ) from error

    def _client(self, described: Described) -> OAuth2Client:
        settings = self._settings
        secret = settings.secret()
        # As a field of the form there are no two opinions on how the secret is encoded.
        with_secret = "client_secret_post" if described.takes_secret_in_form else "client_secret_basic"
        client = OAuth2Client(
            _Posts(self._fetched),
            client_id=settings.client_id,
            client_secret=secret,
            token_endpoint_auth_method="none" if secret is None else with_secret,
            scope=" ".join(settings.scopes),
            redirect_uri=settings.url + RETURN_PATH,
            code_challenge_method="S256",
        )
        client.register_client_auth_method(("client_secret_basic", _basic))
        return client

    def _granted(self, ask: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            return ask()
        except OAuth2Error as error:
            code = error.error if _ERROR_CODE.fullmatch(str(error.error)) else "an error that has no name"
            if code in {"invalid_client", "unauthorized_client"}:
                raise ConfigError(
                    f"the issuer of sign-ins does not take the console for its client ({code}): see "
                    "console.auth.oidc.client_id and client_secret_file"
                ) from error
            raise UnauthenticatedError(
                f"the issuer of sign-ins does not take it any more ({code}): sign in again"
            ) from error
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UnavailableError(f"the issuer of sign-ins gives no token: {_told(error)}") from error

    def _fetched(self, request: urllib.request.Request) -> bytes:
        return fetch(request, context=self._context, within_s=_ANSWER_S, most_bytes=_MOST_BYTES)

    def _reader_of(self, described: Described) -> TokenReader:
        settings = self._settings
        with self._lock:
            if self._reader is None or self._reader[0] != described.keys:
                fetch_keys = fetch_from(described.keys, settings.ca, told_by="console.auth.oidc.ca")
                keys = FetchedKeys(fetch_keys, told_by="console.auth.oidc.issuer")
                reader = TokenReader(
                    keys,
                    issuer=settings.issuer,
                    audience=settings.client_id,
                    leeway_s=settings.leeway_s,
                )
                self._reader = described.keys, reader
            return self._reader[1]

    def _check(self, read: ReadToken, nonce: str, access: str) -> None:
        """What an ID token has to say besides what every token has (OpenID Connect Core, 3.1.3.7)."""
        wanted = {"nonce": nonce, "client_id": self._settings.client_id, "access_token": access}
        try:
            CodeIDToken(read.claims, {"alg": read.algorithm}, params=wanted).validate(
                leeway=self._settings.leeway_s
            )
        except JoseError as error:
            raise UnauthenticatedError(
                f"the ID token was not made for this sign-in: {error.description}"
            ) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise UnauthenticatedError("the ID token can't be read") from error

    def _named(self, claims: Mapping[str, Any], grant: Grant) -> SignedIn:
        claim = self._settings.user_claim
        name = claims.get(claim)
        if not is_a_name(name):
            raise UnauthenticatedError(
                f"the ID token's claim {claim!r} names nobody (console.auth.oidc.user_claim, scopes)"
            )
        if claim == "email" and claims.get("email_verified") is not True:
            raise UnauthenticatedError(
                "the issuer does not say that it has verified this e-mail address (email_verified): whoever may write it "
                "there could be anybody"
            )
        groups = claims.get(self._settings.groups_claim)
        listed = groups if isinstance(groups, list) else [groups]
        return SignedIn(str(name), tuple(item for item in listed if isinstance(item, str)), grant)


class PersonsToken:
    """The token of somebody who has signed in, and newer ones for it. Safe to use from many threads.

    Args:
        grant: the first.
        renew: gets a newer one; raises as `Issuer.renewed`.
        clock: seconds, monotonic.

    Attributes:
        refused: the issuer gives no more: whoever it is has to sign in again.
    """

    def __init__(
        self,
        grant: Grant,
        renew: Callable[[str], Grant],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renew, self._clock = renew, clock
        self._lock = threading.Lock()
        self._grant = grant
        self._until_s = clock() + grant.good_for_s
        self.refused = False

    def __call__(self) -> str:
        """The token, which services take for some time yet.

        Raises:
            NotSignedInError: there is none any more.
            UnavailableError: the issuer does not answer.
        """
        with self._lock:
            if self._clock() < self._until_s:
                return self._grant.access
            if not self._grant.refresh:
                self.refused = True
                raise NotSignedInError("your token has expired: sign in again")
            try:
                newer = self._renew(self._grant.refresh)
            except UnauthenticatedError as error:
                self.refused = True
                raise NotSignedInError(str(error)) from error
            self._grant = Grant(newer.access, newer.good_for_s, newer.refresh or self._grant.refresh)
            self._until_s = self._clock() + newer.good_for_s
            return newer.access


class _Posts:
    """How authlib sends forms here: as everything that we fetch, within a time, and nowhere else than to their address."""

    def __init__(self, fetched: Callable[[urllib.request.Request], bytes]) -> None:
        self._fetched = fetched

    def post(self, url: str, data: Mapping[str, str], headers: Mapping[str, str], auth: ClientAuth) -> _Reply:
        """The answer to a form."""
        url, signed, body = auth.prepare("POST", url, dict(headers), urlencode(data))
        request = urllib.request.Request(url, data=body.encode(), headers=signed, method="POST")  # noqa: S310 - see _safe
        try:
            return _Reply(200, self._fetched(request))
        except urllib.error.HTTPError as error:
            with error:
                return _Reply(error.code, error.read())


@dataclass(frozen=True, slots=True)
class _Reply:
    status_code: int
    body: bytes

    def json(self) -> Any:
        """What it holds."""
        return json.loads(self.body)

    def raise_for_status(self) -> None:
        """An error that says the status."""
        raise ConnectionError(f"status {self.status_code}")


def _basic(
    client: ClientAuth, _method: str, uri: str, headers: dict[str, str], body: str
) -> tuple[str, dict[str, str], str]:
    """Name and secret as RFC 6749 (2.3.1) has them encoded, which authlib leaves out."""
    encoded = ClientAuth(quote(client.client_id, safe=""), quote(client.client_secret, safe=""))
    prepared: tuple[str, dict[str, str], str] = encoded.prepare("POST", uri, headers, body)
    return prepared


def _described(told: Mapping[str, Any], issuer: str) -> Described:
    if told["issuer"] != issuer:
        raise ValueError(f"it calls itself {told['issuer']!r:.200} (console.auth.oidc.issuer)")
    methods = told.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return Described(
        _safe(told["authorization_endpoint"]),
        _safe(told["token_endpoint"]),
        _safe(told["jwks_uri"]),
        _safe(told["end_session_endpoint"]) if "end_session_endpoint" in told else "",
        "client_secret_post" in methods,
    )


def _grant(answer: Mapping[str, Any]) -> Grant:
    access, life, refresh = answer.get("access_token"), answer.get("expires_in"), answer.get("refresh_token")
    if not isinstance(access, str) or not access.isascii() or not access.isprintable():
        raise UnauthenticatedError("the issuer's answer holds no token")
    told_s = _life_s(life)
    # Clocks differ and calls take time: of a token that lives for less than a minute, half is used.
    good_for_s = max(told_s - 30.0, told_s / 2)
    return Grant(access, good_for_s, refresh if isinstance(refresh, str) else "")


def _life_s(life: Any) -> float:
    """How long a token lives; some issuers write that as text."""
    try:
        told_s = float(life)
    except (TypeError, ValueError, OverflowError):
        return _UNTOLD_S
    return told_s if 0 < told_s < math.inf else _UNTOLD_S


def _safe(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(f"{parts.hostname}:0")):
        raise ValueError(f"{address!r:.200} is not https")
    return address


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
