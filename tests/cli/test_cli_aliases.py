"""Aliases of blueque.toml on the command line: commands know the queue by them."""

from __future__ import annotations

import json

import pytest

from blueque.model import keys

FILE = """
    [aliases]
    old = "video"

    [queues.video]
    weight = 7
"""


@pytest.fixture
def blueque(run, tmp_path):
    (tmp_path / "blueque.toml").write_text(FILE)
    return lambda *words: run(*words, BLUEQUE_CONFIG=str(tmp_path / "blueque.toml"))


def test_a_task_is_put_into_the_queue_and_found_by_either_name(blueque, cli):
    task = blueque("enqueue", "old", "1", "--key", "k").stdout.strip()

    assert cli.zrange(keys.QUEUES, 0, -1) == ["video"]
    for name in ("old", "video"):
        assert blueque("ls", "-q", name, "--ids").stdout.split() == [task]
        assert task in blueque("ls", "-q", name, "--key", "k", "--ids").stdout


def test_verbs_on_queues_act_on_the_queue(blueque, client, cli):
    assert blueque("queue", "pause", "old").returncode == 0

    assert client.get_inspector().queue_seen("video").settings.pause is not None
    assert client.get_inspector().queue_seen("old").settings.pause is None
    assert blueque("queue", "set", "old", "max-running=3").returncode == 0
    assert client.get_inspector().queue_seen("video").room.limit == 3
    item = json.loads(blueque("config", "-q", "old", "--json").stdout)
    assert [one["value"] for one in item["items"] if one["name"] == "weight"] == [7]


def test_a_task_is_moved_to_the_queue(blueque, client):
    task = client.get_queue("other").enqueue("in")

    assert "in video" in blueque("move", task, "--to", "old").stdout

    assert client.get_task(task).queue == "video"


def test_a_recurring_task_is_given_to_the_queue(blueque, client):
    client.set_schedule("nightly", queue="other", every="1d")

    assert (
        blueque("schedule", "add", "nightly", "-q", "old", "--every", "1d", "--replace").returncode
        == 0
    )

    assert client.get_schedule("nightly").record["queue"] == "video"


def test_without_the_file_it_is_another_queue(run):
    said = run("ls", "-q", "old").stderr

    assert "no queue 'old'" in said
