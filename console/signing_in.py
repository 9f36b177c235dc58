"""The door where people sign in at an issuer of OpenID Connect: the way there and back, and the session that they have then.

The way there is remembered by the browser alone: all that is needed when it comes back stands, encrypted, in the ``state`` that the
issuer gives back, and only the browser that set out has the cookie that goes with it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken
from starlette.responses import Response
from starlette.types import Scope

from console.issuer import ENDED_PATH, RETURN_PATH, SignedIn
from console.people import NoRoleError, NotSignedInError, OwnToken, Person, granted_to
from console.sessions import Sessions
from parallax.config.console import ConsoleOidc, ConsoleRole
from parallax.errors import UnauthenticatedError

SIGN_IN, SIGNED_IN, SIGN_OUT, SIGNED_OUT = "/sign-in", RETURN_PATH, "/sign-out", ENDED_PATH
ON_THE_WAY_S = 600
"""How long somebody may take to sign in."""
_LONGEST_WAY = 1_000
"""Letters of the page that somebody wanted to see: issuers take states of some thousand."""


class SignIns(Protocol):
    """What the door asks the issuer: see `console.issuer.Issuer`."""

    def sign_in_address(self, *, state: str, nonce: str, verifier: str, anew: bool) -> str:
        """Where somebody signs in."""
        ...

    def sign_out_address(self) -> str:
        """Where somebody ends their session there."""
        ...

    def signed_in(self, code: str, *, nonce: str, verifier: str) -> SignedIn:
        """Who comes back."""
        ...

    def token_of(self, signed_in: SignedIn) -> OwnToken:
        """What they show to offset services."""
        ...


@dataclass(frozen=True, slots=True)
class Cookies:
    """The two cookies, which no script can read and no other page's form is sent with.

    Attributes:
        session: name of the one that stands for a session.
        way: name of the one that a browser sets out with.
        secure: whether they are sent over https alone.
    """

    session: str
    way: str
    secure: bool

    @classmethod
    def of(cls, url: str) -> Cookies:
        """Those of a console: browsers keep one set for all ports of a host."""
        secure = url.startswith("https:")
        of_url = hashlib.sha256(url.encode()).hexdigest()[:8]
        # With this prefix no other host of the domain can set them.
        prefix = "__Host-" if secure else ""
        return cls(f"{prefix}parallax-{of_url}", f"{prefix}parallax-way-{of_url}", secure)

    def set(self, response: Response, name: str, value: str, max_age_s: int) -> None:
        """Put one into an answer."""
        response.set_cookie(
            name, value, max_age=max_age_s, path="/", secure=self.secure, httponly=True, samesite="lax"
        )


class SignInDoor:
    """Lets in whoever has signed in. Safe to use from many threads.

    Args:
        settings: of the issuer.
        roles: of people.
        issuer: where they sign in.
        sessions: of those who have.
        now_s: seconds since 1970.
    """

    def __init__(
        self,
        settings: ConsoleOidc,
        roles: Sequence[ConsoleRole],
        issuer: SignIns,
        sessions: Sessions | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.cookies = Cookies.of(settings.url)
        self.max_age_s = settings.session_max_age_s
        self._settings, self._roles, self._issuer = settings, roles, issuer
        self._sessions = sessions or Sessions(settings.session_max_age_s)
        self._now_s = now_s
        self._sealed = Fernet(Fernet.generate_key())

    def person(self, scope: Scope) -> Person:
        """Whoever has the session of the request's cookie."""
        found = self._sessions.person(cookie_in(scope, self.cookies.session))
        if found is None:
            raise NotSignedInError("nobody is signed in here, or not any more: sign in")
        return found

    def set_out(self, to: str, way: str, *, anew: bool = False) -> tuple[str, str]:
        """Send somebody to the issuer.

        Args:
            to: the page that they want to see.
            way: the cookie of an earlier time that they set out, in another tab; empty: there is none.
            anew: let them sign in though they have.

        Returns:
            The issuer's address, and the cookie to set out with.

        Raises:
            UnavailableError: the issuer does not answer.
        """
        way = way or secrets.token_urlsafe(32)
        nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        remembered = {"nonce": nonce, "verifier": verifier, "way": _digest(way), "to": page_of_ours(to)}
        state = self._sealed.encrypt_at_time(json.dumps(remembered).encode(), int(self._now_s()))
        address = self._issuer.sign_in_address(
            state=state.decode(), nonce=nonce, verifier=verifier, anew=anew
        )
        return address, way

    def come_back(
        self, *, state: str, way: str, code: str, error: str, issuer: str
    ) -> tuple[str, str, Person]:
        """Take somebody in who comes back from the issuer.

        Args:
            state: what they set out with.
            way: the cookie that goes with it.
            code: the issuer's; empty: it gives none.
            error: why not, in one word of the issuer's.
            issuer: who has sent them, if it says so (RFC 9207).

        Returns:
            The id of their session, the page that they wanted to see, and who they are.

        Raises:
            NotSignedInError: they did not set out from here, took too long, or have proven nothing.
            NoRoleError: they have no role here.
            UnavailableError: the issuer does not answer.
            ConfigError: the issuer does not take the console for its client.
        """
        remembered = self._remembered(state, way)
        if issuer and issuer != self._settings.issuer:
            raise NotSignedInError("another issuer than the one of this console has sent you back")
        if error or not code:
            word = error if error.isascii() and error.replace("_", "").isalpha() else "it gives no code"
            raise NotSignedInError(f"the issuer has not let you sign in ({word:.64})")
        try:
            found = self._issuer.signed_in(code, nonce=remembered["nonce"], verifier=remembered["verifier"])
        except UnauthenticatedError as refused:
            raise NotSignedInError(str(refused)) from refused
        granted = granted_to(found.name, found.member_of, self._roles)
        if not granted:
            raise NoRoleError(f"{found.name} has no role here (console.auth.roles)")
        acts = self._settings.acts_as == "person"
        person = Person(found.name, granted, self._issuer.token_of(found) if acts else None)
        return self._sessions.begin(person), remembered["to"], person

    def _remembered(self, state: str, way: str) -> dict[str, str]:
        try:
            kept = self._sealed.decrypt_at_time(state.encode(), ON_THE_WAY_S, int(self._now_s()))
        except (InvalidToken, ValueError) as error:
            raise NotSignedInError(
                "this sign-in did not begin here, or too long ago, or before the console's last start: sign in again"
            ) from error
        remembered: dict[str, str] = json.loads(kept)
        if not way or not hmac.compare_digest(remembered["way"], _digest(way)):
            raise NotSignedInError("this sign-in began in another browser: sign in again")
        return remembered

    def unasked(self, path: str) -> bool:
        """Whether a page is for whoever asks: those by which people sign in, and what these look like."""
        return path in {SIGN_IN, SIGNED_IN, SIGNED_OUT} or path.startswith("/static/")

    def leave(self, scope: Scope) -> None:
        """End the session of a request's cookie."""
        self._sessions.end(cookie_in(scope, self.cookies.session))

    def sign_out_address(self) -> str:
        """Where somebody ends their session with the issuer, too; empty: nowhere."""
        return self._issuer.sign_out_address()


def cookie_in(scope: Scope, name: str) -> str:
    """The value of a cookie; empty: there is none, or more than one of the name."""
    values = []
    for key, header in scope["headers"]:
        if key == b"cookie":
            for part in header.decode("latin-1").split(";"):
                found, _, value = part.strip().partition("=")
                if found == name:
                    values.append(value)
    return values[0] if len(values) == 1 else ""


def page_of_ours(to: str) -> str:
    """A page of this console, as somebody has asked for it; the first one for whatever leads elsewhere."""
    leads_elsewhere = not to.startswith("/") or to.startswith("//") or "\\" in to or not to.isprintable()
    if (
        leads_elsewhere
        or len(to) > _LONGEST_WAY
        or urlsplit(to).path in {SIGN_IN, SIGNED_IN, SIGN_OUT, SIGNED_OUT}
    ):
        return "/"
    return to


def _digest(way: str) -> str:
    return hashlib.sha256(way.encode("utf-8", "surrogatepass")).hexdigest()
