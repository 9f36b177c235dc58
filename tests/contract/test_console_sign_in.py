"""Signing in at the console: by a real issuer on loopback, through real HTTP, and all that could be wrong on the way."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import jwt
import pytest
from structlog.testing import capture_logs

from console.web import HEADERS
from parallax.client.client import OffsetClient
from parallax.client.credentials import ServiceCredentials
from parallax.domain.rights import Principal, ProvenBy
from tests.support import poll_until
from tests.unit.console.test_pages import Read
from tests.worlds.authority import Issuer
from tests.worlds.failover_bench import two_sources
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, World
from tests.worlds.people_issuer import CLIENT, SECRET, SERVICES, PeopleIssuer
from tests.worlds.signed_console import starting

PAGE = {"Accept": "text/html,application/xhtml+xml"}
NOWHERE = "/nowhere"
"""A page without a question to an offset service: who looks stands on it all the same."""
RULES = [
    {"principals": ["console"], "groups": [".*"], "allow": ["read"]},
    {"principals": ["console", "ada"], "groups": ["billing"], "allow": ["decide"]},
    {"principals": ["prometheus"], "groups": [".*"], "allow": ["read"]},
]


PLAIN = ssl.create_default_context()
"""Nothing here speaks TLS, and making one of these for each request takes longer than the request."""
opened = partial(httpx.get, verify=PLAIN)


@dataclass
class Bank:
    """A console, and the issuer at which its people sign in."""

    issuer: PeopleIssuer
    url: str
    served: Served | None = None

    def browser(self) -> Browser:
        return Browser(self.url)


class Browser:
    """Keeps cookies, and follows no redirection by itself."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies = httpx.Cookies()

    def request(self, method: str, address: str, **options: Any) -> httpx.Response:
        client = httpx.Client(base_url=self.url, headers=PAGE, cookies=self.cookies, timeout=60, verify=PLAIN)
        with client as http:
            answer = http.request(method, address, **options)
            self.cookies = http.cookies
        return answer

    def get(self, address: str, **headers: str) -> httpx.Response:
        return self.request("GET", address, headers=headers)

    def to_the_issuer(self, page: str = NOWHERE) -> str:
        """Open a page; the issuer's address that one is sent to."""
        asked = self.get(page)
        assert (asked.status_code, urlsplit(asked.headers["location"]).path) == (303, "/sign-in")
        sent = self.get(asked.headers["location"])
        assert sent.status_code == 303, sent.text
        return str(sent.headers["location"])

    def back(self, page: str = NOWHERE) -> str:
        """Sign in; the console's address that one comes back to."""
        answer = opened(self.to_the_issuer(page))
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])

    def sign_in(self, page: str = NOWHERE) -> httpx.Response:
        return self.get(self.back(page))

    def is_signed_in(self) -> bool:
        return self.get(NOWHERE).status_code == 404

    def form(self, page: str, action: str) -> dict[str, str]:
        """The fields of a form of a page."""
        found = Read(self.get(page))
        at = next(number for number, item in enumerate(found.elements) if item[1].get("action") == action)
        fields: dict[str, str] = {}
        for tag, attributes in found.elements[at + 1 :]:
            if tag == "form":
                break
            if tag == "input":
                fields[attributes["name"]] = attributes.get("value", "")
        return fields

    def send(self, action: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        return self.request("POST", action, data=fields, headers={"Origin": self.url, **headers})


@pytest.fixture
def bank() -> Iterator[Bank]:
    with PeopleIssuer() as issuer, ExitStack() as stack:
        yield Bank(issuer, starting(stack, issuer))


def refused(answer: httpx.Response, status: int = 401) -> str:
    """What a page says, on which somebody is not signed in."""
    assert answer.status_code == status, answer.text
    assert "parallax-way" not in answer.headers.get("set-cookie", "")
    assert "set-cookie" not in answer.headers
    return Read(answer).text


# --- there and back --------------------------------------------------------------------------------------------------


def test_who_opens_a_page_signs_in_and_comes_back_to_it(bank: Bank) -> None:
    browser = bank.browser()
    page = "/group?name=%3Cb%3E+%26+x&section=lag"
    sent = urlsplit(browser.to_the_issuer(page))
    asked = {key: values[0] for key, values in parse_qs(sent.query).items()}
    assert f"{sent.scheme}://{sent.netloc}{sent.path}" == f"{bank.issuer.url}/authorize"
    assert (
        asked.items()
        >= {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": f"{bank.url}/signed-in",
            "scope": "openid profile email",
            "code_challenge_method": "S256",
        }.items()
    )
    assert len(asked["code_challenge"]) == 43
    assert len(asked["nonce"]) == 43
    back = opened(sent.geturl()).headers["location"]
    answer = browser.get(back)
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["cache-control"] == "no-store"
    path, form = bank.issuer.asked[-2 if bank.issuer.asked[-1][0] == "/jwks" else -1]
    assert (path, form["grant_type"], form["redirect_uri"]) == (
        "/token",
        "authorization_code",
        f"{bank.url}/signed-in",
    )
    shown = Read(browser.get(NOWHERE))
    assert "ada admin" in shown.text
    assert "Sign out" in shown.text


def test_a_session_is_a_cookie_that_no_script_reads_and_no_other_page_sends(bank: Bank) -> None:
    browser = bank.browser()
    set_out = browser.get(f"/sign-in?to={NOWHERE}")
    came_back = browser.get(opened(set_out.headers["location"]).headers["location"])
    for answer, life_s in ((set_out, 600), (came_back, 28_800)):
        cookie = answer.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=lax", "path=/", f"max-age={life_s}"))
        assert "domain" not in cookie
    name, _, value = came_back.headers["set-cookie"].partition(";")[0].partition("=")
    assert name.startswith("parallax-")
    assert len(value) == 43
    assert value not in str([item.text for item in (set_out, came_back)])


def test_several_tabs_sign_in_beside_each_other(bank: Bank) -> None:
    browser = bank.browser()
    first, second = browser.back("/nowhere?tab=1"), browser.back("/nowhere?tab=2")
    assert browser.get(second).headers["location"] == "/nowhere?tab=2"
    assert browser.get(first).headers["location"] == "/nowhere?tab=1"
    assert browser.is_signed_in()


@pytest.mark.parametrize(
    "headers", [{"Accept": "*/*"}, {"Accept": "text/html", "HX-Request": "true"}, {"Accept": "text/csv"}]
)
def test_what_a_page_or_a_program_asks_is_refused_in_a_word(bank: Bank, headers: dict[str, str]) -> None:
    answer = opened(f"{bank.url}/groups", headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (401, "text/plain; charset=utf-8")
    assert "sign in" in answer.text
    assert bank.issuer.asked == []


def test_pages_look_as_they_should_before_somebody_signs_in(bank: Bank) -> None:
    assert opened(f"{bank.url}/healthz").status_code == 200
    assert opened(f"{bank.url}/static/console.css").status_code == 200
    assert opened(f"{bank.url}/static/../groups", headers={"Accept": "*/*"}).status_code == 401


@pytest.mark.parametrize(
    ("methods", "shown"),
    [
        (("client_secret_basic",), "basic"),
        (None, "basic"),
        (("client_secret_basic", "client_secret_post"), "form"),
        (("none",), "nothing"),
    ],
)
def test_the_console_proves_itself_as_its_issuer_wants(methods: tuple[str, ...] | None, shown: str) -> None:
    public = shown == "nothing"
    with PeopleIssuer(methods=methods, public=public) as issuer, ExitStack() as stack:
        url = starting(stack, issuer, oidc={"client_secret": None} if public else {})
        assert Browser(url).sign_in().status_code == 303
    form = next(form for path, form in issuer.asked if path == "/token")
    assert ("client_secret" in form) == (shown == "form")


def test_a_console_that_its_issuer_does_not_know_says_so(bank: Bank) -> None:
    with ExitStack() as stack:
        browser = Browser(starting(stack, bank.issuer, oidc={"client_secret": "another"}))
        assert "client_secret_file" in refused(browser.sign_in(), 500)
        assert not browser.is_signed_in()


# --- who it is, and what they may ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "oidc", "words"),
    [
        ({"sub": "ada"}, {}, "ada admin"),
        ({"sub": "7f3c", "groups": ["other", "staff"]}, {}, "7f3c viewer"),
        ({"sub": "7f3c", "groups": "staff"}, {}, "7f3c viewer"),
        ({"sub": "7f3c", "roles": ["staff"]}, {"groups_claim": "roles"}, "7f3c viewer"),
        ({"sub": "7f3c", "preferred_username": "ada"}, {"user_claim": "preferred_username"}, "ada admin"),
        ({"sub": "7f3c", "email": "ada", "email_verified": True}, {"user_claim": "email"}, "ada admin"),
    ],
)
def test_roles_are_those_of_the_claims(who: dict[str, Any], oidc: dict[str, Any], words: str) -> None:
    with PeopleIssuer(who=who) as issuer, ExitStack() as stack:
        browser = Browser(starting(stack, issuer, oidc=oidc))
        assert browser.sign_in().status_code == 303
        assert words in Read(browser.get(NOWHERE)).text


@pytest.mark.parametrize(
    "who",
    [
        {"sub": "eve"},
        {"sub": "eve", "groups": ["staffs", "xstaff", None, 7, {"staff": True}]},
        {"sub": "eve", "groups": {"staff": True}},
        {"sub": "adaeve"},
        {"sub": "ADA"},
    ],
)
def test_whom_no_role_fits_has_no_session(bank: Bank, who: dict[str, Any]) -> None:
    bank.issuer.who = who
    browser = bank.browser()
    answer = browser.sign_in()
    words = refused(answer, 403)
    assert "has no role here (console.auth.roles)" in words
    assert "Sign in as somebody else" in words
    assert not browser.is_signed_in()
    asked = browser.get("/sign-in?anew=true").headers["location"]
    assert parse_qs(urlsplit(asked).query)["prompt"] == ["login"]


@pytest.mark.parametrize("name", ["</span><script>alert(1)</script>", "{{ 7 * 7 }}", "名前", "a" * 512])
def test_no_name_breaks_a_page(bank: Bank, name: str) -> None:
    bank.issuer.who = {"sub": name, "groups": ["staff"]}
    browser = bank.browser()
    browser.sign_in()
    page = Read(browser.get(NOWHERE))
    assert name in page.words[page.words.index(f"{name} ")]
    assert [item for item in page.all("script") if "src" not in item] == []


# --- what could be wrong ---------------------------------------------------------------------------------------------


def unsigned(said: dict[str, Any]) -> str:
    return jwt.encode(said, "", algorithm="none")


LATER = 3_600
CLAIMS: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]], str]] = [
    ("another nonce", lambda said: {**said, "nonce": "x" * 43}, "nonce"),
    ("no nonce", lambda said: {**said, "nonce": None}, "nonce"),
    ("another audience", lambda said: {**said, "aud": "billing"}, "another audience"),
    ("no audience", lambda said: {**said, "aud": None}, "aud"),
    ("also for others", lambda said: {**said, "aud": [CLIENT, "billing"]}, "azp"),
    ("given to others", lambda said: {**said, "azp": "billing"}, "azp"),
    ("expired", lambda said: {**said, "exp": int(time.time()) - LATER}, "expired"),
    ("no end", lambda said: {**said, "exp": None}, "exp"),
    ("from later", lambda said: {**said, "iat": int(time.time()) + LATER}, "clock"),
    ("no beginning", lambda said: {**said, "iat": None}, "iat"),
    ("another issuer", lambda said: {**said, "iss": "https://other.example"}, "another issuer"),
    ("of another token", lambda said: {**said, "at_hash": "x" * 22}, "at_hash"),
    ("nobody", lambda said: {**said, "sub": ""}, "names nobody"),
    ("two lines", lambda said: {**said, "sub": "ada\nadmin"}, "names nobody"),
    ("nonsense", lambda said: {**said, "at_hash": {"x": 1}}, "read"),
]


@pytest.mark.parametrize(("change", "words"), [item[1:] for item in CLAIMS], ids=[item[0] for item in CLAIMS])
def test_an_id_token_that_was_not_made_for_this_sign_in_proves_nobody(
    bank: Bank, change: Callable[[dict[str, Any]], dict[str, Any]], words: str
) -> None:
    bank.issuer.change = change
    browser = bank.browser()
    assert words in refused(browser.sign_in())
    assert not browser.is_signed_in()
    bank.issuer.change = dict
    assert browser.sign_in().status_code == 303


@pytest.mark.parametrize(
    ("email", "words"),
    [
        ({}, "names nobody"),
        ({"email": "ada"}, "verified"),
        ({"email": "ada", "email_verified": "true"}, "verified"),
    ],
)
def test_an_address_counts_only_if_the_issuer_has_verified_it(email: dict[str, Any], words: str) -> None:
    with PeopleIssuer(who={"sub": "7f3c", **email}) as issuer, ExitStack() as stack:
        browser = Browser(starting(stack, issuer, oidc={"user_claim": "email"}))
        assert words in refused(browser.sign_in())


def test_a_token_of_another_key_proves_nobody(bank: Bank) -> None:
    bank.issuer.signed_by = Issuer(name=bank.issuer.url)
    assert "no key of the issuer" in refused(bank.browser().sign_in())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda answer: {**answer, "id_token": unsigned({"sub": "ada"})}, "signed with one of"),
        (lambda answer: {key: value for key, value in answer.items() if key != "id_token"}, "no ID token"),
        (lambda answer: {**answer, "id_token": 7}, "no ID token"),
        (lambda answer: {key: value for key, value in answer.items() if key != "access_token"}, "no token"),
        (lambda answer: {**answer, "access_token": "two\r\nlines"}, "no token"),
    ],
)
def test_an_answer_without_a_proof_proves_nobody(
    bank: Bank, change: Callable[[dict[str, Any]], dict[str, Any]], words: str
) -> None:
    tokens = bank.issuer._tokens
    bank.issuer._tokens = lambda claims, nonce=None: change(tokens(claims, nonce))  # type: ignore[method-assign]
    assert words in refused(bank.browser().sign_in())


def changed(address: str, **values: str) -> str:
    parts = urlsplit(address)
    query = {key: found[0] for key, found in parse_qs(parts.query).items()} | values
    return parts._replace(query=urlencode({key: value for key, value in query.items() if value})).geturl()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"state": ""}, "did not begin here"),
        ({"state": "x"}, "did not begin here"),
        ({"state": "名"}, "did not begin here"),
        ({"code": ""}, "it gives no code"),
        ({"code": "x"}, "invalid_grant"),
        ({"iss": "https://other.example"}, "another issuer"),
        ({"code": "", "error": "access_denied"}, "access_denied"),
        ({"error": "<b>call this number</b>"}, "it gives no code"),
    ],
)
def test_who_comes_back_with_something_else_is_not_signed_in(
    bank: Bank, values: dict[str, str], words: str
) -> None:
    browser = bank.browser()
    assert words in refused(browser.get(changed(browser.back(), **values)))
    assert not browser.is_signed_in()


def test_the_issuers_refusal_is_told(bank: Bank) -> None:
    bank.issuer.refuses = "access_denied"
    assert "has not let you sign in (access_denied)" in refused(bank.browser().sign_in())


def test_a_state_of_another_browser_or_of_another_console_is_none(bank: Bank) -> None:
    """Else somebody could have others sign in under their own name, and see what they do."""
    mine, other = bank.browser(), bank.browser()
    address = mine.back()
    assert "another browser" in refused(other.get(address))
    other.to_the_issuer()
    assert "another browser" in refused(other.get(address))
    with ExitStack() as stack:
        restarted = starting(stack, bank.issuer)
        parts = urlsplit(restarted)
        assert "did not begin here" in refused(
            mine.get(urlsplit(address)._replace(netloc=parts.netloc).geturl())
        )
    assert mine.get(address).status_code == 303


def test_a_code_of_another_sign_in_is_not_taken(bank: Bank) -> None:
    """PKCE: a code that somebody has picked up is of no use with a sign-in of their own."""
    victim, thief = bank.browser(), bank.browser()
    [stolen] = parse_qs(urlsplit(victim.back()).query)["code"]
    assert "invalid_grant" in refused(thief.get(changed(thief.back(), code=stolen)))
    assert not thief.is_signed_in()


def test_a_code_is_taken_once(bank: Bank) -> None:
    browser = bank.browser()
    address = browser.back()
    assert browser.get(address).status_code == 303
    assert "invalid_grant" in refused(browser.get(address))
    assert browser.is_signed_in(), "the first one stands"


def test_what_proves_something_is_in_no_log_and_on_no_page(bank: Bank) -> None:
    browser = bank.browser()
    with capture_logs() as logs:
        address = browser.back()
        browser.get(address)
        page = browser.get(address).text
    query = parse_qs(urlsplit(address).query)
    for text in (*query["code"], *query["state"], *browser.cookies.values(), SECRET):
        assert text not in page
        assert text not in json.dumps(logs, default=str)


@pytest.mark.parametrize(
    "to",
    [
        "https://evil.example/",
        "//evil.example/",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/a\\..\\x",
        "javascript:alert(1)",
        "/\t/evil.example",
        "//[",
        "groups",
        "/sign-out",
        "/signed-in?code=x",
        "/sign-in?to=/",
        f"/{'x' * 1_000}",
    ],
)
def test_nobody_is_led_elsewhere(bank: Bank, to: str) -> None:
    browser = bank.browser()
    sent = browser.request("GET", "/sign-in", params={"to": to})
    back = opened(sent.headers["location"]).headers["location"]
    assert browser.get(back).headers["location"] == "/"


# --- an issuer that is not well --------------------------------------------------------------------------------------


def test_an_issuer_that_is_away_is_told_and_found_again(bank: Bank) -> None:
    browser = bank.browser()
    bank.issuer.away = 503
    assert "can't be asked" in refused(browser.get("/sign-in"), 503)
    bank.issuer.away = 0
    sent = poll_until(
        lambda: found if (found := browser.get("/sign-in")).status_code == 303 else None,
        10,
        "it is asked again",
    )
    back = opened(sent.headers["location"]).headers["location"]
    bank.issuer.away = 500
    assert "gives no token" in refused(browser.get(back), 503)
    bank.issuer.away = 0
    assert browser.sign_in().status_code == 303


def test_a_console_starts_and_goes_on_without_its_issuer(bank: Bank) -> None:
    browser = bank.browser()
    browser.sign_in()
    bank.issuer.close()
    assert browser.is_signed_in()
    with ExitStack() as stack:
        other = Browser(starting(stack, bank.issuer))
        assert "can't be asked" in refused(other.get("/sign-in"), 503)
        assert other.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": "https://other.example"}, "calls itself"),
        ({"token_endpoint": "http://other.example/token"}, "is not https"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "is not https"),
        ({"jwks_uri": None}, "can't be asked"),
        ({"issuer": None}, "calls itself"),
    ],
)
def test_what_an_issuer_tells_of_itself_is_not_believed_blindly(
    bank: Bank, change: dict[str, Any], words: str
) -> None:
    told = json.dumps({**bank.issuer.description(), **change}).encode()
    bank.issuer.answers["/.well-known/openid-configuration"] = 200, {}, told
    assert words in refused(bank.browser().get("/sign-in"), 503)


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense", b"[]", b"7", b"[" * 50_000, b"{" + b" " * 300_000 + b"}"]
)
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/jwks"])
def test_nonsense_is_told_and_proves_nobody(bank: Bank, path: str, answer: bytes) -> None:
    bank.issuer.answers[path] = 200, {}, answer
    browser = bank.browser()
    found = browser.get("/sign-in")
    if found.status_code == 303:
        found = browser.get(opened(found.headers["location"]).headers["location"])
    assert found.status_code in {401, 503}, found.text
    assert not browser.is_signed_in()


def test_a_key_that_the_issuer_changes_is_found(bank: Bank) -> None:
    browser = bank.browser()
    assert browser.sign_in().status_code == 303
    bank.issuer.issuer = Issuer(name=bank.issuer.url, keys={"second": bank.issuer.issuer.keys["first"]})
    token = bank.issuer.issuer.token
    bank.issuer.issuer.token = lambda *args, **claims: token(*args, key_id="second", **claims)  # type: ignore[method-assign]
    assert bank.browser().sign_in().status_code == 303


# --- signing out -----------------------------------------------------------------------------------------------------


def test_who_signs_out_is_out_wherever_the_cookie_is(bank: Bank) -> None:
    browser = bank.browser()
    browser.sign_in()
    kept = dict(browser.cookies)
    fields = browser.form(NOWHERE, "/sign-out")
    answer = browser.send("/sign-out", fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/signed-out")
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert not browser.is_signed_in()
    browser.cookies.update(kept)
    assert not browser.is_signed_in()
    page = Read(browser.get("/signed-out"))
    [leave] = [item["href"] for item in page.all("a") if item.get("id") == "everywhere"]
    assert leave.startswith(f"{bank.issuer.url}/leave?client_id={CLIENT}&post_logout_redirect_uri=")


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"seal": ""}, {}),
        ({"seal": "0" * 64}, {}),
        ({}, {"Origin": "https://evil.example"}),
        ({}, {"Origin": ""}),
    ],
)
def test_no_other_page_signs_somebody_out(
    bank: Bank, change: dict[str, str], headers: dict[str, str]
) -> None:
    browser = bank.browser()
    browser.sign_in()
    fields = browser.form(NOWHERE, "/sign-out") | change
    assert browser.send("/sign-out", fields, **headers).status_code == 403
    assert browser.get("/sign-out").status_code == 405
    assert browser.is_signed_in()


def test_signing_in_ends_the_session_from_before_and_takes_none_from_a_cookie(bank: Bank) -> None:
    browser = bank.browser()
    browser.sign_in()
    name, before = next((key, value) for key, value in browser.cookies.items() if "way" not in key)
    browser.get(opened(browser.get("/sign-in").headers["location"]).headers["location"])
    assert browser.cookies[name] != before
    stale = bank.browser()
    stale.cookies.set(name, before)
    assert not stale.is_signed_in()


@pytest.mark.parametrize("value", ["", "x", "x" * 43, "%00", "é"])
def test_no_cookie_but_a_sessions_lets_in(bank: Bank, value: str) -> None:
    browser = bank.browser()
    browser.sign_in()
    name, own = next((key, item) for key, item in browser.cookies.items() if "way" not in key)
    for header in (f"{name}={value}", f"{name}={own}; {name}={value}", f"x{name}={own}"):
        answer = opened(f"{bank.url}{NOWHERE}", headers=[("Accept", "*/*"), ("Cookie", header.encode())])
        assert answer.status_code == 401


def test_a_form_of_a_session_that_has_ended_does_nothing_and_leads_back(bank: Bank) -> None:
    browser = bank.browser()
    answer = browser.send("/move/execute", {"seal": "x"}, Referer=f"{bank.url}/move?group=billing&to=b")
    page = Read(answer)
    assert answer.status_code == 401
    [again] = [item["href"] for item in page.all("a") if item.get("id") == "in"]
    assert parse_qs(urlsplit(again).query) == {"to": ["/move?group=billing&to=b"]}


# --- in whose name ---------------------------------------------------------------------------------------------------


def services_of(issuer: PeopleIssuer, tmp_path: Path) -> World:
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.issuer.document())
    accepted = {"issuer": issuer.url, "audience": SERVICES, "jwks": str(keys)}
    world = World(service={"auth": {"mode": "jwt", "jwt": accepted, "rules": RULES}})
    world.let_write()
    two_sources(world)
    world.commit("a", 15)
    return world


@pytest.fixture
def issuer() -> Iterator[PeopleIssuer]:
    with PeopleIssuer() as found:
        yield found


@pytest.fixture
def served(issuer: PeopleIssuer, tmp_path: Path) -> Iterator[Served]:
    with serving(services_of(issuer, tmp_path)) as found:
        yield found


def moving(browser: Browser) -> httpx.Response:
    fields = browser.form("/move?group=billing&to=b", "/move/execute")
    return browser.send("/move/execute", {**fields, "typed": "billing"})


def own(issuer: PeopleIssuer) -> dict[str, Any]:
    """The console's own token."""
    return {"client": {"token": issuer.issuer.token("console", aud=SERVICES)}}


def test_the_audit_names_the_person_whose_token_the_service_has_seen(
    issuer: PeopleIssuer, served: Served
) -> None:
    with ExitStack() as stack:
        url = starting(stack, issuer, target=served.target, oidc={"acts_as": "person"}, **own(issuer))
        browser = Browser(url)
        browser.sign_in()
        answer = moving(browser)
        assert answer.status_code == 303, answer.text
    with served.client(
        credentials=ServiceCredentials(token=issuer.issuer.token("console", aud=SERVICES))
    ) as client:
        assert ended(client) == "moved"
    assert {item.principal for item in served.world.audit.entries()} == {Principal("ada", ProvenBy.TOKEN)}


def ended(client: OffsetClient) -> str:
    def look() -> str | None:
        [move] = client.list_moves(GROUP).moves
        return None if move.state == "running" else move.state

    return str(poll_until(look, 20, "the move ends"))


def test_what_a_person_may_not_there_is_refused_whatever_their_role_here(
    issuer: PeopleIssuer, served: Served
) -> None:
    issuer.who = {"sub": "bob"}
    with ExitStack() as stack:
        url = starting(stack, issuer, target=served.target, oidc={"acts_as": "person"}, **own(issuer))
        browser = Browser(url)
        browser.sign_in()
        answer = moving(browser)
    assert answer.status_code == 403
    assert "bob" in Read(answer).text
    assert "shown your own token" in answer.text
    assert served.world.audit.entries() == []


def test_by_itself_the_console_acts_in_its_own_name_and_says_for_whom(
    issuer: PeopleIssuer, served: Served
) -> None:
    with ExitStack() as stack:
        browser = Browser(starting(stack, issuer, target=served.target, **own(issuer)))
        browser.sign_in()
        assert moving(browser).status_code == 303
    assert {item.principal for item in served.world.audit.entries()} == {
        Principal("console", ProvenBy.TOKEN, acts_for="ada")
    }


def test_a_token_that_has_expired_is_renewed_or_its_owner_signs_in_again(
    issuer: PeopleIssuer, served: Served
) -> None:
    issuer.life_s = 0.001
    with ExitStack() as stack:
        url = starting(stack, issuer, target=served.target, oidc={"acts_as": "person"}, **own(issuer))
        browser = Browser(url)
        browser.sign_in()
        answer = moving(browser)
        assert answer.status_code == 401
        page = Read(answer)
        assert "expired: sign in again" in page.text
        assert not browser.is_signed_in(), "the issuer may have taken it back"
        issuer.refreshes = True
        browser.sign_in()
        moved = moving(browser)
        assert moved.status_code == 303
        grants = [form.get("grant_type") for path, form in issuer.asked if path == "/token"]
        assert grants == ["authorization_code", "authorization_code", "refresh_token"]
        issuer.refresh_tokens.clear()
        [move_id] = parse_qs(urlsplit(moved.headers["location"]).query)["move_id"]
        fields = {**browser.form(NOWHERE, "/sign-out"), "move_id": move_id}
        answer = browser.send("/move/cancel", fields)
        assert answer.status_code == 401
        assert "invalid_grant" in Read(answer).text
        assert not browser.is_signed_in()


def test_metrics_are_for_whom_the_services_rules_let_read(issuer: PeopleIssuer, served: Served) -> None:
    service = served.world.config.service.model_dump(mode="json", include={"auth"})
    with ExitStack() as stack:
        url = starting(stack, issuer, service=service)
        for name, status in (("prometheus", 200), ("eve", 403)):
            token = issuer.issuer.token(name, aud=SERVICES)
            answer = opened(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == status
        assert opened(f"{url}/metrics").status_code == 401


def test_metrics_are_anybodys_where_services_take_no_tokens(bank: Bank) -> None:
    assert "parallax_console_requests_total" in opened(f"{bank.url}/metrics").text


def test_the_challenge_is_the_digest_of_what_the_token_is_asked_with(bank: Bank) -> None:
    browser = bank.browser()
    sent = parse_qs(urlsplit(browser.to_the_issuer()).query)
    browser.get(opened(f"{bank.issuer.url}/authorize", params=sent).headers["location"])
    form = next(form for path, form in bank.issuer.asked if path == "/token")
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    assert sent["code_challenge"] == [base64.urlsafe_b64encode(digest).rstrip(b"=").decode()]
    assert len(form["code_verifier"]) >= 43
