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


def test_the_last_queue_with_work_is_drained_and_then_all_are_waited_for(programs, client, cli):
    queue = client.get_queue("audio")
    ids = [queue.enqueue("in") for _ in range(3 * EACH)]

    programs.listener("work:work", "audio", "text", queue="video")
    assert [task.status for task in client.wait(ids, timeout=60)] == ["complete"] * 3 * EACH
    until(lambda: cli.info("clients")["blocked_clients"] == 1, what="it waits")

    for name in ("text", "video"):
        assert client.wait(client.get_queue(name).enqueue("in"), timeout=60).status == "complete"
