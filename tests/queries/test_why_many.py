"""Why many pending tasks wait, asked for at once: the same as for each of them alone."""

from __future__ import annotations

import time

import pytest
from transactions import protocol

from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.queue_settings import pausing

NODES = ("gpu-1_1", "gpu-2_2")


@pytest.fixture
def waiting(redis, client):
    """Two busy listeners of video and audio, a paused queue, a lock that is held; returns the ids of
    tasks that wait.
    """
    now = time.time()
    for node in NODES:
        for queue in ("video", "audio"):
            facts = {"beat_every": 10, "resources": "gpu=1"}
            protocol.register(redis, queue, node, "i", facts, now)
    for node, task in zip(NODES, ("runs-1", "runs-2"), strict=True):
        protocol.enqueue(redis, "video", task, "1", now - 100, {"parameters_encoding": "json"})
        protocol.pop(redis, "video", node, "i")
        protocol.reserve(redis, AttemptRef("video", task, "t", node), "i", now - 100)
        protocol.start(redis, AttemptRef("video", task, "t", node), 77, now - 100)
    protocol.progress(redis, AttemptRef("video", "runs-1", "t", NODES[0]), "50 %", now)
    protocol.set_settings(redis, "mail", pausing("ada", None, now), now, "ada")
    redis.read(("HSET", keys.settings("audio"), "max_running", 3))
    video, audio = client.get_queue("video"), client.get_queue("audio")
    ids = [video.enqueue({"n": n}) for n in range(3)]
    ids += [video.enqueue(1, priority=5), video.enqueue(1, resources={"gpu": 1})]
    ids += [audio.enqueue(1, lock="disk"), audio.enqueue(1, resources={"gpu": 2})]
    return [*ids, client.get_queue("mail").enqueue(1), client.get_queue("nobody").enqueue(1)]


def test_it_takes_four_round_trips_for_any_number_of_tasks(client, url, waiting, proxy):
    inspector = client.get_inspector()
    tasks = inspector.tasks(waiting)
    through = type(client)(proxy.url).get_inspector()
    through.now()

    counts = []
    for number in (1, len(tasks)):
        before = proxy.writes
        through.inquire_all(tasks[:number])
        counts.append(proxy.writes - before)

    assert max(counts) <= 4
