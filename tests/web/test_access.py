"""Who may see the page, and from where a request may come."""

from __future__ import annotations

import pytest

from blueque.web import access
from blueque.web.access import COOKIE, Viewer


def scope(**headers: str) -> dict[str, object]:
    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return {"headers": named, "client": ("10.0.0.9", 1234), "scheme": "http"}


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "none"}, False),
        ({"origin": "http://page:1", "host": "page:1"}, True),
        ({"origin": "http://evil", "host": "page:1"}, False),
        ({"origin": "null", "host": "page:1"}, False),
        ({"origin": "https://page:1", "host": "page:1"}, True),
        ({"origin": "null", "host": "null"}, False),
        ({"host": "page:1"}, False),
        ({}, False),
        ({"authorization": "Bearer secret", "cookie": f"{COOKIE}=x"}, False),
    ],
)
def test_a_change_has_to_come_from_a_page_of_ours(headers, is_own):
    assert access.is_own(scope(**headers), Viewer("ada", "operator")) is is_own
    assert access.is_own(scope(**headers), Viewer("ada", "operator", is_program=True))


def test_a_page_that_was_not_encrypted_changes_nothing_on_one_that_is():
    foreign = scope(origin="http://page:1", host="page:1") | {"scheme": "https"}
    assert not access.is_own(foreign, Viewer("ada"))


def test_only_known_names_of_the_host_are_answered():
    assert access.is_host_known(scope(host="127.0.0.1:8264"), ())
    assert access.is_host_known(scope(host="[::1]:8264"), ())
    assert access.is_host_known(scope(host="queue.example"), ("queue.example",))
    assert access.is_host_known(scope(host="192.0.2.7:8264"), ())  # no name leads there
    assert not access.is_host_known(scope(host="evil.example"), ("queue.example",))
    assert not access.is_host_known(scope(host="[::1"), ("queue.example",))
    assert not access.is_host_known(scope(), ("queue.example",))
