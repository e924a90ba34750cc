"""How many tasks many queues have in each status, without reading the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from blueque.model import keys
from blueque.queries.listeners import held, members
from blueque.queries.queues import queue_seen
from blueque.queries.steps import in_step, of_each, read
from blueque.queries.waiting_lines import waits

if TYPE_CHECKING:
    from blueque.connection.redis import Redis
    from blueque.queries.steps import Reader


def counts(redis: Redis, queues: Sequence[str]) -> Counter[str]:
    """Return how many tasks of these queues have each status: two round trips, or three.

    A list of Redis counts with all its entries, whatever the hashes of their tasks say.
    """
    found = Counter[str]()
    for counted in read(redis, of_each({queue: _counts(queue) for queue in queues})).values():
        found += counted
    return found


def _counts(queue: str) -> Reader[Counter[str]]:
    seen, found = yield from in_step(queue_seen(queue), members(queue))
    popped, lines = yield from in_step(held(queue, found), waits(queue, seen.lines))
    # What has started is not reserved: it need not be read to know that.
    tasks = {*popped}.difference(found.started_tasks)
    states = yield [("HGET", keys.task(task), "status") for task in tasks]
    return Counter(
        scheduled=seen.scheduled,
        blocked=seen.blocked,
        pending=seen.in_default + sum(line.length for line in lines),
        reserved=states.count("reserved"),
        started=seen.started,
        complete=seen.complete,
        failed=seen.failed,
        cancelled=seen.cancelled,
    )
