"""Second names of queues: whatever names a queue by one, Redis has the first name only."""

from __future__ import annotations

import pytest

from blueque import Client
from blueque.audit.doctor import Doctor
from blueque.settings.file import parse

FILE = """
    [aliases]
    old = "video"

    [queues.video]
    retry = 2
"""


@pytest.fixture
def named(url):
    client = Client(url, config=parse(FILE))
    yield client
    client.close()


def test_a_client_without_the_file_knows_no_alias_and_the_doctor_says_so(named, client, cli):
    client.get_queue("old").enqueue("in")

    (check,) = [one for one in Doctor(named.connections).check() if one.name == "aliases"]

    assert check.level == "warn"
    assert "old is an alias of queue video in blueque.toml, and Redis has a queue" in check.sentence
    assert not [one for one in Doctor(client.connections).check() if one.name == "aliases"]
