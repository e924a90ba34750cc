"""What a proxy says of a request, and what others say in its name."""

from __future__ import annotations

import pytest

from blueque.errors import InvalidInput
from blueque.web.access import Viewer
from blueque.web.proxies import NAMED, Proxies, networks_of

PROXY, OTHER = ("10.0.0.2", 5000), ("10.9.9.9", 5000)


def scope(client, *headers):
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    return {"headers": pairs, "client": client, "scheme": "http"}


@pytest.fixture
def proxies():
    return Proxies(
        networks_of(["10.0.0.0/24"]), user_header="X-Forwarded-User", role_header="Remote-Groups"
    )


def test_a_proxy_names_the_viewer_its_role_its_address_and_its_scheme(proxies):
    seen = proxies.believed(
        scope(
            PROXY,
            ("x-forwarded-user", "ada"),
            ("remote-groups", "staff,operator"),
            ("x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.0.0.3"),
            ("x-forwarded-proto", "https"),
        )
    )

    assert seen[NAMED] == Viewer("ada", "operator")
    assert (seen["client"][0], seen["scheme"]) == ("192.0.2.7", "https")


@pytest.mark.parametrize("client", [OTHER, None, ("", 0)])
def test_a_forged_header_of_another_address_is_removed(proxies, client):
    seen = proxies.believed(
        scope(
            client,
            ("x-forwarded-user", "root"),
            ("remote-groups", "operator"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("accept", "*/*"),
        )
    )

    assert seen == scope(client, ("accept", "*/*"))


def test_a_unix_socket_is_believed_only_where_the_page_listens_on_one():
    forged = scope(None, ("x-user", "ada"))

    assert NAMED not in Proxies(user_header="X-User").believed(forged)
    assert Proxies(has_socket=True, user_header="X-User").believed(forged)[NAMED].name == "ada"


@pytest.mark.parametrize(
    "headers",
    [
        [("x-forwarded-user", "")],
        [("x-forwarded-user", "ada"), ("x-forwarded-user", "root")],
        [("x-forwarded-user", "a\u202eda")],
        [("x-forwarded-user", "a" * 101)],
    ],
)
def test_an_unclear_name_is_no_name(proxies, headers):
    assert NAMED not in proxies.believed(scope(PROXY, *headers))


def test_without_a_word_of_the_role_a_viewer_may_only_look(proxies):
    for more in [], [("remote-groups", "operators")], [("remote-groups", "operator")] * 2:
        seen = proxies.believed(scope(PROXY, ("x-forwarded-user", "ada"), *more))
        assert seen[NAMED].role == "viewer"


def test_the_password_file_may_say_the_role_of_whom_a_proxy_names():
    roles = {"ada": "operator"}
    proxies = Proxies(
        networks_of(["::ffff:10.0.0.2/128", "10.0.0.2"]), False, "x-user", "", roles.get
    )
    named = [proxies.believed(scope(PROXY, ("x-user", name)))[NAMED] for name in ("ada", "eve")]

    assert named == [Viewer("ada", "operator"), Viewer("eve", "viewer")]


@pytest.mark.parametrize("text", ["proxy", "0.0.0.0/0", "::/0"])
def test_networks_that_cannot_be_meant_are_refused(text):
    with pytest.raises(InvalidInput, match="address"):
        networks_of([text])
