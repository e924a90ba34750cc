"""A listener program of several queues: which task comes next, when the end of one may pop it."""

from __future__ import annotations

import pytest
from running import until

WORK = """\
def work(task):
    return task.id
"""
EACH = 6


@pytest.mark.parametrize(
    ("select", "order"),
    [("round-robin", ["video", "audio"] * EACH), ("ordered", ["video"] * EACH + ["audio"] * EACH)],
)
def test_the_next_task_is_that_of_the_queue_that_the_selector_names(
    programs, client, select, order
):
    queues = {name: client.get_queue(name) for name in ("audio", "video")}
    ids = [queue.enqueue("in") for queue in queues.values() for _ in range(EACH)]

    programs.listener("work:work", "audio", "text", "--select", select, queue="video")
    tasks = client.wait(ids, timeout=60)

    assert [task.result for task in tasks] == ids
    assert [task.queue for task in sorted(tasks, key=lambda task: task.started)] == order


OWN = """
class Turns:
    def __init__(self):
        self.last = ""

    def __call__(self, queues, with_work):
        self.last = "audio" if self.last == "video" else "video"
        return [self.last]

turns = Turns()

def fails(queues, with_work):
    if with_work == {"audio", "video"}:
        raise ValueError("no order")
    return queues

def wrong(queues):
    return queues
"""


def test_a_selector_of_the_user_says_which_queue_is_next(programs, client):
    programs.write(OWN, "own.py")
    queues = {name: client.get_queue(name) for name in ("audio", "video")}
    ids = [queue.enqueue("in") for queue in queues.values() for _ in range(EACH)]

    programs.write('[listener]\nselect = "own:turns"', "blueque.toml")
    listener = programs.listener("work:work", "audio", "text", queue="video")
    tasks = client.wait(ids, timeout=60)

    order = [task.queue for task in sorted(tasks, key=lambda task: task.started)]
    assert order == ["video", "audio"] * EACH
    assert "3 queues (own:turns)" in listener.log


def test_a_selector_that_raises_ends_no_listener(programs, client):
    programs.write(OWN, "own.py")
    ids = [client.get_queue(name).enqueue("in") for name in ("audio", "video")]

    listener = programs.listener(
        "work:work", "audio", "text", "--select", "own:fails", queue="video"
    )

    assert {task.status for task in client.wait(ids, timeout=60)} == {"complete"}
    listener.says("the selector own:fails fails, so the first queue with work is next: ValueError")


@pytest.mark.parametrize(
    ("select", "code", "said"),
    [
        ("own:wrong", 78, "the selector own:wrong cannot be used: TypeError"),
        ("own:nothing", 78, "own has no 'nothing'"),
        (":nothing", 2, "is not of the form package.module:callable"),
        ("random", 2, "'random' is not one of"),
    ],
)
def test_what_cannot_choose_is_refused_at_the_start(programs, select, code, said):
    programs.write(OWN, "own.py")
    found, log = programs.run_to_end("video", "audio", "--select", select, "--handler", "work:work")
    assert (found, said in log) == (code, True), log


def test_the_last_queue_with_work_is_drained_and_then_all_are_waited_for(programs, client, cli):
    queue = client.get_queue("audio")
    ids = [queue.enqueue("in") for _ in range(3 * EACH)]

    programs.listener("work:work", "audio", "text", queue="video")
    assert [task.status for task in client.wait(ids, timeout=60)] == ["complete"] * 3 * EACH
    until(lambda: cli.info("clients")["blocked_clients"] == 1, what="it waits")

    for name in ("text", "video"):
        assert client.wait(client.get_queue(name).enqueue("in"), timeout=60).status == "complete"
