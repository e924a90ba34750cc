"""Who comes in: by a token, with a password, or named by a proxy."""

from __future__ import annotations

import pytest

from blueque.web import access, tries
from blueque.web.access import COOKIE, Viewer
from blueque.web.logins import Logins
from blueque.web.passwords import Hash, Passwords, Person
from blueque.web.proxies import NAMED

HASH = Hash(2, 1, 1, b"salt", b"\0" * 32)


def scope(**headers: str) -> dict[str, object]:
    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return {"headers": named, "client": ("10.0.0.9", 1234), "scheme": "http"}


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def logins(clock):
    return Logins({"secret": "operator", "look": "viewer"}, clock=lambda: clock[0])


def test_a_token_has_a_role_and_a_cookie_remembers_it(logins, clock):
    cookie = logins.cookie(logins.viewer_of("look"))

    assert logins(scope(cookie=f"{COOKIE}={cookie}")) == Viewer("viewer", "viewer")
    clock[0] += access.LASTS + 1
    assert logins(scope(cookie=f"{COOKIE}={cookie}")) is None


def test_a_cookie_that_was_changed_or_signed_with_other_secrets_is_refused(logins):
    text, _, signature = logins.cookie(Viewer("operator", "operator")).rpartition(".")
    others = [
        Logins({"other": "operator"}),
        Logins({"secret": "operator", "look": "viewer"}, Passwords({"a": Person("viewer", HASH)})),
    ]

    assert logins(scope(cookie=f"{COOKIE}=x{text}.{signature}")) is None
    assert logins(scope(cookie=f"{COOKIE}=nonsense")) is None
    for other in others:
        forged = other.cookie(Viewer("operator", "operator"))
        assert logins(scope(cookie=f"{COOKIE}={forged}")) is None


@pytest.mark.parametrize(
    ("tokens", "people"), [({}, {}), ({"look": "viewer"}, {"ada": Person("operator", None)})]
)
def test_a_viewer_knows_no_key_of_cookies_where_no_operator_has_a_secret(tokens, people):
    mine, theirs = (Logins(tokens, Passwords(people)) for _ in range(2))
    forged = theirs.cookie(Viewer("eve", "operator"))

    assert mine(scope(cookie=f"{COOKIE}={forged}")) is None


def test_servers_with_the_same_secrets_accept_each_others_cookies(logins):
    other = Logins({"look": "viewer", "secret": "operator"}, clock=lambda: 1000.0)

    assert logins(scope(cookie=f"{COOKIE}={other.cookie(Viewer('ada'))}")) == Viewer("ada")


def test_wrong_tokens_of_others_at_an_address_do_not_keep_out_the_right_one(logins):
    for _ in range(tries.TRIES):
        assert logins(scope(authorization="Bearer wrong")) is None

    found = logins(scope(authorization="Bearer secret"))
    assert found == Viewer("operator", "operator", is_program=True)


def test_whom_a_proxy_names_is_no_program_whatever_else_the_request_has(logins):
    """A proxy for single sign-on may pass a bearer token of its own on with each click."""
    seen = scope(authorization="Bearer eyJhbGciOi") | {NAMED: Viewer("ada", "operator")}

    assert logins(seen) == Viewer("ada", "operator", is_program=False)
    assert not access.is_own(seen, logins(seen))


def test_addresses_of_one_ipv6_network_count_as_one_and_few_are_remembered(monkeypatch):
    monkeypatch.setattr(tries, "MOST_ADDRESSES", 2)
    wrong = tries.WrongTries(lambda: 1.0)
    for number in range(tries.TRIES):
        wrong.note(f"2001:db8::{number}", "ada")

    assert wrong.is_blocked("2001:db8::ffff", "ada")
    assert not wrong.is_blocked("2001:db8::ffff", "bob")
    assert not wrong.is_blocked("2001:db8:0:1::", "ada")
    for address in ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "10.0.0.3"):
        wrong.note(address, "ada")
    assert [*wrong._wrong] == [("10.0.0.3", "ada"), ("10.0.0.3", None)]


def test_wrong_passwords_of_an_address_for_many_names_block_that_address_alone():
    wrong = tries.WrongTries(lambda: 1.0)
    for number in range(tries.TRIES_OF_ADDRESS):
        assert not wrong.is_blocked("10.0.0.1", "bob")
        wrong.note("10.0.0.1", f"name {number}")

    assert wrong.is_blocked("10.0.0.1", "bob") and not wrong.is_blocked("10.0.0.2", "bob")
