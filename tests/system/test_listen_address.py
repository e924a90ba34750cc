"""blueque.system.listen_address."""

from __future__ import annotations

import pytest

from blueque import InvalidInput
from blueque.system.listen_address import parse_address


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("[::1]:80", ("::1", 80)),
        (":1", ("", 1)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port(said, meant):
    assert parse_address(said) == meant


@pytest.mark.parametrize("said", ["9464", "::1:80", "a:b", "a:70000", "a:"])
def test_what_is_no_address_is_refused(said):
    with pytest.raises(InvalidInput, match=r"HOST:PORT|more than 65535"):
        parse_address(said)
