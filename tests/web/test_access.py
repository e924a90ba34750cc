"""Who may see the page, and from where a request may come."""

from __future__ import annotations

import pytest

from blueque.web import access
from blueque.web.access import COOKIE, Tokens, Viewer


def scope(**headers: str) -> dict[str, object]:
    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return {"headers": named, "client": ("10.0.0.9", 1234), "scheme": "http"}


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def tokens(clock):
    return Tokens({"secret": "operator", "look": "viewer"}, lambda: clock[0])


def test_a_token_has_a_role_and_a_cookie_remembers_it(tokens, clock):
    cookie = tokens.cookie(tokens.viewer_of("look"))

    assert tokens(scope(cookie=f"{COOKIE}={cookie}")) == Viewer("viewer", "viewer")
    clock[0] += access.LASTS + 1
    assert tokens(scope(cookie=f"{COOKIE}={cookie}")) is None


def test_a_cookie_that_was_changed_or_signed_with_other_tokens_is_refused(tokens):
    text, _, signature = tokens.cookie(Viewer("operator", "operator")).rpartition(".")
    forged = Tokens({"other": "operator"}).cookie(Viewer("operator", "operator"))

    assert tokens(scope(cookie=f"{COOKIE}=x{text}.{signature}")) is None
    assert tokens(scope(cookie=f"{COOKIE}={forged}")) is None
    assert tokens(scope(cookie=f"{COOKIE}=nonsense")) is None


def test_five_wrong_tokens_block_an_address_for_a_minute(tokens, clock):
    for _ in range(access.TRIES):
        assert tokens(scope(authorization="Bearer wrong")) is None

    assert tokens(scope(authorization="Bearer secret")) is None
    clock[0] += access.WITHIN + 1
    assert tokens(scope(authorization="Bearer secret")) == Viewer("operator", "operator")


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "none"}, False),
        ({"origin": "http://page:1", "host": "page:1"}, True),
        ({"origin": "http://evil", "host": "page:1"}, False),
        ({"origin": "null", "host": "page:1"}, False),
        ({}, False),
        ({"authorization": "Bearer secret"}, True),
        ({"authorization": "Bearer secret", "cookie": f"{COOKIE}=x"}, False),
    ],
)
def test_a_change_has_to_come_from_a_page_of_ours_or_a_program(headers, is_own):
    assert access.is_own(scope(**headers)) is is_own


def test_only_known_names_of_the_host_are_answered():
    assert access.is_host_known(scope(host="127.0.0.1:8264"), ())
    assert access.is_host_known(scope(host="[::1]:8264"), ())
    assert access.is_host_known(scope(host="queue.example"), ("queue.example",))
    assert not access.is_host_known(scope(host="evil.example"), ("queue.example",))
    assert not access.is_host_known(scope(), ("queue.example",))
