"""Tokens for SASL/OAUTHBEARER, of one source for both Kafka clients: fetched ahead of time, and once for a whole process.

librdkafka could ask an issuer by itself. Then it and the batch path would differ in what they send, in when they ask again
and in how they fail, and each client would ask for a token of its own.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from parallax.adapters.tls import client_context, refusal
from parallax.config.security import OAuth, Security
from parallax.errors import ClusterUnavailableError, ConfigError, ParallaxError
from parallax.runtime.fetching import fetch

RENEW_AT = 0.7
"""A token is replaced after this part of its life: before librdkafka (0.8) and the batch path (0.85) authenticate again."""

_ANSWER_S = 5.0
_MOST_BYTES = 256 * 1024
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ERROR_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REFUSED = frozenset({*range(300, 400), 400, 401, 403, 404})
"""HTTP's codes that will not change by themselves; a redirection is not followed."""
_FAILED_HOLDS_S = 1.0
"""After a failure, nobody asks again for so long."""


@dataclass(frozen=True, slots=True)
class Token:
    """What proves who we are, until it expires.

    Attributes:
        value: the token; never shown.
        expires_at_s: seconds since 1970.
        fetched_at_s: likewise.
        extensions: what goes with it.
    """

    value: str = field(repr=False)
    expires_at_s: float
    fetched_at_s: float
    extensions: Mapping[str, str] = field(default_factory=dict)

    def is_due(self, now_s: float) -> bool:
        """Whether the next one should be fetched."""
        return now_s >= self.fetched_at_s + RENEW_AT * (self.expires_at_s - self.fetched_at_s)


class TokenSource:
    """Fetches tokens and keeps the last one. Safe to use from several threads.

    Args:
        fetch: gets a new one; may take some seconds.
        clock: seconds since 1970.
    """

    def __init__(self, fetch: Callable[[], Token], clock: Callable[[], float] = time.time) -> None:
        self._fetch = fetch
        self._clock = clock
        self._fetching = threading.Lock()
        self._token: Token | None = None
        self._problem: tuple[float, ParallaxError] | None = None

    def get(self) -> Token:
        """A token that is not due, fetched now if need be; where that fails, the last one as long as it is valid.

        Raises:
            ConfigError: the issuer refuses us.
            ClusterUnavailableError: it did not answer.
        """
        with self._fetching:
            token, now_s = self._token, self._clock()
            if token is not None and not token.is_due(now_s):
                return token
            if self._problem is None or now_s - self._problem[0] >= _FAILED_HOLDS_S:
                try:
                    self._token, self._problem = self._fetch(), None
                except ParallaxError as error:
                    self._problem = self._clock(), error
                else:
                    return self._token
            if token is not None and now_s < token.expires_at_s:
                return token
            problem = self._problem[1]
        raise type(problem)(str(problem)) from problem

    def ask(self, heard: Callable[[], None]) -> None:
        """`get` in another thread, if it would have to fetch; ``heard`` is called when `get` has an answer at once."""
        token = self._token
        if token is not None and not token.is_due(self._clock()):
            heard()
            return
        threading.Thread(target=self._get_and_tell, args=(heard,), name="token", daemon=True).start()

    def _get_and_tell(self, heard: Callable[[], None]) -> None:
        try:
            self.get()
        except ParallaxError:
            pass  # whoever hears it asks `known`
        finally:
            heard()

    def known(self) -> Token:
        """The last token; fetches none.

        Raises:
            ParallaxError: there is none that is valid; the message says why the last attempt failed.
        """
        token, problem = self._token, self._problem
        if token is not None and self._clock() < token.expires_at_s:
            return token
        if problem is None:
            raise ClusterUnavailableError("the issuer of tokens has not answered yet")
        raise type(problem[1])(str(problem[1])) from problem[1]


_sources: dict[object, TokenSource] = {}
_sources_lock = threading.Lock()


def token_source(security: Security) -> TokenSource | None:
    """This process's source of tokens for these settings; None: they need none."""
    oauth, region = security.sasl_oauth, security.sasl_aws_region
    key: object
    if security.sasl_mechanism == "OAUTHBEARER" and oauth is not None:
        key = oauth.model_dump_json(), oauth.client_secret

        def fetch() -> Token:
            return fetch_token(oauth)

    elif security.sasl_mechanism == "AWS_MSK_IAM" and region is not None:
        key = region

        def fetch() -> Token:
            return aws_token(region)

    else:
        return None
    with _sources_lock:
        return _sources.setdefault(key, TokenSource(fetch))


# --- where they come from ----------------------------------------------------------------------------------------------


def fetch_token(oauth: OAuth) -> Token:
    """A new token by the client credentials grant (RFC 6749, 4.4).

    Raises:
        ConfigError: the endpoint refuses the client, answers with something else, or is not the one that is trusted.
        ClusterUnavailableError: it did not answer in time.
    """
    where = f"token endpoint {oauth.token_endpoint}"
    context = None
    if oauth.token_endpoint.startswith("https:"):
        context = client_context(
            "security.sasl_oauth",
            ca=oauth.ca_location,
            certificate=None,
            key=None,
            key_password=None,
            verify_hostname=True,
        )
    began_at_s = time.time()
    try:
        body = fetch(_request(oauth), context=context, within_s=_ANSWER_S, most_bytes=_MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            kind = ConfigError if error.code in _REFUSED else ClusterUnavailableError
            raise kind(
                f"{where}: refuses client {oauth.client_id!r}: HTTP {error.code}{_error_code(error)}: check client_id, "
                "client_secret_file and scope"
            ) from None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        why = refusal(reason) if isinstance(reason, BaseException) else None
        if why is not None:
            raise ConfigError(f"{where}: {why}") from None
        raise ClusterUnavailableError(f"{where}: did not answer: {reason}") from None
    return _token(body, oauth, where, began_at_s)


def _request(oauth: OAuth) -> urllib.request.Request:
    form = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
    pair = f"{urllib.parse.quote(oauth.client_id, safe='')}:{urllib.parse.quote(oauth.secret(), safe='')}"
    headers = {
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    body = urllib.parse.urlencode(form).encode()
    return urllib.request.Request(oauth.token_endpoint, body, headers, method="POST")  # noqa: S310 - https, or loopback


def _error_code(error: urllib.error.HTTPError) -> str:
    """The issuer's word for it (RFC 6749, 5.2), and nothing else of what it answers."""
    try:
        code = json.loads(error.read(_MOST_BYTES))["error"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return f" {code}" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _token(body: bytes, oauth: OAuth, where: str, now_s: float) -> Token:
    try:
        answer = json.loads(body)
        value = answer["access_token"]
        life_s = float(answer["expires_in"]) if "expires_in" in answer else _expiry_s(value) - now_s
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ConfigError(
            f"{where}: its answer has no access_token, or nothing says when it expires"
        ) from None
    if not isinstance(value, str) or _BEARER.fullmatch(value) is None or life_s <= 0:
        raise ConfigError(f"{where}: its answer has no usable access_token (RFC 6750), or an expired one")
    return Token(value, now_s + life_s, now_s, oauth.extensions)


def _expiry_s(value: str) -> float:
    claims = value.split(".")[1]
    return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])


def aws_token(region: str) -> Token:
    """A token signed with the keys that AWS's own libraries find (environment, profile, instance).

    Raises:
        ConfigError: the signer is not installed, or finds no keys.
    """
    try:
        signer = importlib.import_module("aws_msk_iam_sasl_signer").MSKAuthTokenProvider
    except ImportError:
        raise ConfigError(
            "security.sasl_mechanism AWS_MSK_IAM needs the package aws-msk-iam-sasl-signer-python: install parallax-kafka[aws]"
        ) from None
    now_s = time.time()
    try:
        value, expires_at_ms = signer.generate_auth_token(region)
    except Exception as error:  # noqa: BLE001 - botocore's errors have no base that means "no keys"
        raise ConfigError(
            f"AWS_MSK_IAM: no token could be signed for {region}: {type(error).__name__}"
        ) from None
    return Token(value, expires_at_ms / 1_000, now_s)
