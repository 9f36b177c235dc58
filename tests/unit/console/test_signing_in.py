"""The door where people sign in: what it remembers, for how long, and where it sends nobody."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.app import create_app
from console.issuer import Grant, PersonsToken, SignedIn, _grant
from console.people import Granted, NotSignedInError, OwnToken, Person, Role
from console.sessions import MOST, MOST_OF_ONE, Sessions
from console.signing_in import Cookies, SignInDoor, page_of_ours
from parallax.config.console import ConsoleOidc, ConsoleRole
from parallax.errors import UnauthenticatedError, UnavailableError
from tests.worlds.console_reads import group_reads

HOUR_S = 3_600.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class FakeIssuer:
    """Gives everybody who comes back the same name."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def sign_in_address(self, **values: Any) -> str:
        self.sent.append(values)
        return "https://login.example/authorize"

    def sign_out_address(self) -> str:
        return ""

    def signed_in(self, code: str, *, nonce: str, verifier: str) -> SignedIn:
        assert {"nonce": nonce, "verifier": verifier}.items() <= self.sent[-1].items()
        return SignedIn(code, ("staff",), Grant("token", HOUR_S, ""))

    def token_of(self, signed_in: SignedIn) -> OwnToken:
        return PersonsToken(signed_in.grant, lambda _: signed_in.grant)


def door(clock: Clock, issuer: FakeIssuer) -> SignInDoor:
    settings = ConsoleOidc(
        issuer="https://login.example", client_id="console", url="https://parallax.example"
    )
    return SignInDoor(settings, [ConsoleRole(role="viewer", members_of=("staff",))], issuer, now_s=clock)


@pytest.mark.parametrize(("took_s", "taken"), [(0, True), (599, True), (601, False), (86_400, False)])
def test_who_takes_too_long_sets_out_again(took_s: float, *, taken: bool) -> None:
    clock, issuer = Clock(), FakeIssuer()
    found = door(clock, issuer)
    _, way = found.set_out("/groups", "")
    back = {"state": issuer.sent[0]["state"], "way": way, "code": "ada", "error": "", "issuer": ""}
    clock.now_s += took_s
    if taken:
        assert found.come_back(**back)[1] == "/groups"
    else:
        with pytest.raises(NotSignedInError, match="too long ago"):
            found.come_back(**back)


def test_every_sign_in_has_secrets_of_its_own_that_nobody_reads_on_the_way() -> None:
    issuer = FakeIssuer()
    found = door(Clock(), issuer)
    ways = [found.set_out("/groups", "")[1] for _ in range(3)]
    for name in ("state", "nonce", "verifier"):
        assert len({item[name] for item in issuer.sent}) == 3
    assert len(set(ways)) == 3
    for item, way in zip(issuer.sent, ways, strict=True):
        assert not any(text in item["state"] for text in (item["nonce"], item["verifier"], way, "groups"))


@given(
    st.text(max_size=30)
    | st.lists(
        st.sampled_from(["/", "\\", "\t", "\n", "evil.example", "http:", "@", ":", "%2f", ".", "?", "#"])
    ).map("".join)
)
def test_a_page_of_ours_is_on_our_host_however_a_browser_reads_it(to: str) -> None:
    """Browsers take a backslash for a slash, and leave out tabs and line ends."""
    found = page_of_ours(to)
    as_read = "".join(letter for letter in found if letter not in "\t\r\n").replace("\\", "/")
    assert urlsplit(urljoin("https://parallax.example/sign-in", as_read)).netloc == "parallax.example"
    assert found in {to, "/"}


@pytest.mark.parametrize("page", ["/", "/groups", "/group?name=%2F%2Fx&a=b", "/explain?from=a//b"])
def test_a_page_of_ours_is_gone_back_to(page: str) -> None:
    assert page_of_ours(page) == page


def test_cookies_of_https_are_for_that_host_and_https_alone() -> None:
    safe, plain = Cookies.of("https://parallax.example"), Cookies.of("http://127.0.0.1:7680")
    assert safe.secure
    assert not plain.secure
    assert all(name.startswith("__Host-") for name in (safe.session, safe.way))
    assert Cookies.of("http://127.0.0.1:7681").session != plain.session


def signed_out(path: str, referer: str) -> httpx.Response:
    """What a form is answered with once its sender's session has ended."""
    app = create_app(
        group_reads(), region="a", hosts={"parallax.example"}, door=door(Clock(), FakeIssuer()), now_ms=int
    )

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="https://parallax.example") as client:
            headers = {"accept": "text/html", "referer": referer}
            return await client.post(path, headers=headers, data={"seal": "x"})

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("referer", "to"),
    [
        ("https://parallax.example/move?group=x&to=b", "/move?group=x&to=b"),
        ("https://parallax.example/groups", "/groups"),
        ("https://parallax.example/move/execute", "/"),  # it answers forms alone
        ("https://parallax.example/nowhere", "/"),
        ("https://evil.example/groups", "/"),
        ("http://[", "/"),
        ("", "/"),
    ],
)
def test_who_signs_in_again_comes_back_to_a_page_that_can_be_opened(referer: str, to: str) -> None:
    answer = signed_out("/move/execute", referer)
    assert answer.status_code == 401
    (link,) = re.findall(r'id="in" href="([^"]+)"', answer.text)
    assert parse_qs(urlsplit(unescape(link)).query)["to"] == [to]


@pytest.mark.parametrize(
    ("told", "good_for_s"),
    [
        (3_600, 3_570),
        ("3600", 3_570),
        ("40.0", 20),
        (0, 30),
        ("soon", 30),
        ("inf", 30),
        (None, 30),
        ("nan", 30),
    ],
)
def test_a_token_lives_as_long_as_its_issuer_says_in_a_number_or_in_text(
    told: object, good_for_s: float
) -> None:
    assert _grant({"access_token": "t", "expires_in": told}).good_for_s == good_for_s


# --- sessions --------------------------------------------------------------------------------------------------------


def person(name: str = "ada", token: OwnToken | None = None) -> Person:
    return Person(name, (Granted(Role.VIEWER),), token)


def test_a_session_ends_after_its_time_whatever_is_asked_meanwhile() -> None:
    clock = Clock()
    sessions = Sessions(HOUR_S, clock)
    made = sessions.begin(person())
    for _ in range(60):
        assert sessions.person(made) == person()
        clock.now_s += 60
    assert sessions.person(made) is None
    clock.now_s -= 120
    assert sessions.person(made) is None


def test_a_session_ends_with_a_sign_out_and_no_other_does() -> None:
    sessions = Sessions(HOUR_S)
    first, second = sessions.begin(person()), sessions.begin(person())
    sessions.end(first)
    sessions.end("x")
    assert sessions.person(first) is None
    assert sessions.person(second) == person()


def test_one_person_can_not_end_the_sessions_of_others() -> None:
    sessions = Sessions(HOUR_S)
    other = sessions.begin(person("bob"))
    own = [sessions.begin(person()) for _ in range(2 * MOST)]
    living = [made for made in own if sessions.person(made) is not None]
    assert living == own[-MOST_OF_ONE:]
    assert sessions.person(other) == person("bob")


def test_there_are_so_many_sessions_and_the_first_ones_end() -> None:
    sessions = Sessions(HOUR_S)
    made = [sessions.begin(person(f"person-{number}")) for number in range(MOST + 5)]
    assert [number for number, item in enumerate(made) if sessions.person(item) is None] == [0, 1, 2, 3, 4]


# --- the token of somebody -------------------------------------------------------------------------------------------


def test_a_token_is_renewed_once_it_is_old_and_the_newer_refresh_token_counts() -> None:
    clock, asked = Clock(), []

    def renew(refresh: str) -> Grant:
        asked.append(refresh)
        return Grant(f"token-{len(asked)}", 60.0, "" if len(asked) == 1 else f"refresh-{len(asked)}")

    token = PersonsToken(Grant("token-0", 60.0, "refresh-0"), renew, clock)
    seen = []
    for _ in range(4):
        seen += [token(), token()]
        clock.now_s += 60
    assert seen == ["token-0", "token-0", "token-1", "token-1", "token-2", "token-2", "token-3", "token-3"]
    assert asked == ["refresh-0", "refresh-0", "refresh-2"]


def test_an_issuer_that_is_away_ends_no_session_and_one_that_refuses_does() -> None:
    clock = Clock()
    problem: Exception = UnavailableError("away")

    def renew(_: str) -> Grant:
        raise problem

    token = PersonsToken(Grant("token", 60.0, "refresh"), renew, clock)
    sessions = Sessions(HOUR_S, clock)
    made = sessions.begin(person(token=token))
    clock.now_s += 60
    with pytest.raises(UnavailableError):
        token()
    assert sessions.person(made) is not None
    problem = UnauthenticatedError("invalid_grant")
    with pytest.raises(NotSignedInError):
        token()
    assert sessions.person(made) is None
