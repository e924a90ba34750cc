"""Any two changes at the same time: whoever is overtaken does what he would do if he had come
later, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from restoring import restoring
from transactions import protocol

from blueque.connection.redis import Redis
from blueque.errors import BluequeError
from blueque.model.attempt_ref import AttemptRef
from blueque.model.new_task import NewTask
from blueque.model.retry import Retry
from blueque.protocol import rechecking
from blueque.protocol.ends import End
from blueque.protocol.membership import Heartbeat
from blueque.protocol.parents import TaskParent
from blueque.protocol.recover import Loss

Q, OURS, ANOTHER = "video", "host_1", "host_3"
FIELDS = {
    "queue": Q,
    "parameters": "in",
    "created": "5.5",
    "attempt": "1",
    "token": "token",
    "pid": "77",
}

# Tasks that wait for t1, in two ways.
CHILDREN = [
    NewTask("c1", Q, "in", {"broken": "cancel"}, {"t1": "ok"}),
    NewTask("c2", Q, "in", {}, {"t1": "any"}),
]

# What can be done to the task t1 of the listener host_1, by itself and by others. Times are fixed:
# they are no difference.
CALLS: dict[str, Callable[[Redis], object]] = {
    "pop": lambda redis: protocol.pop(redis, Q, OURS, "i1"),
    "pop elsewhere": lambda redis: protocol.pop(redis, Q, ANOTHER, "i3"),
    "reserve": lambda redis: protocol.reserve(redis, AttemptRef(Q, "t1", "token", OURS), "i1", 6.5),
    "start": lambda redis: protocol.start(redis, AttemptRef(Q, "t1", "token", OURS), 77, 7.5),
    "progress": lambda redis: protocol.progress(
        redis, AttemptRef(Q, "t1", "token", OURS), "50 %", 8.5
    ),
    "note": lambda redis: protocol.note(
        redis, AttemptRef(Q, "t1", "token", OURS), 1, "took the old model", 8.5
    ),
    "complete": lambda redis: protocol.end(
        redis, AttemptRef(Q, "t1", "token", OURS), End.complete("out"), 9.5
    ),
    "fail": lambda redis: protocol.end(
        redis, AttemptRef(Q, "t1", "token", OURS), End.fail("why"), 9.5
    ),
    "retry": lambda redis: protocol.end(
        redis, AttemptRef(Q, "t1", "token", OURS), End.retry(99.5), 9.5
    ),
    "retry at once": lambda redis: protocol.end(
        redis, AttemptRef(Q, "t1", "token", OURS), End.retry(None), 9.5
    ),
    "release": lambda redis: protocol.end(
        redis, AttemptRef(Q, "t1", "token", OURS), End.release(), 9.5
    ),
    "confirm_cancel": lambda redis: protocol.end(
        redis, AttemptRef(Q, "t1", "token", OURS), End.confirm_cancel(), 9.5
    ),
    "cancel": lambda redis: protocol.cancel(redis, Q, "t1", "ann", None, 9.5),
    "requeue": lambda redis: protocol.requeue(redis, Q, "t1", "mark", 9.5),
    "delete": lambda redis: protocol.delete(redis, Q, "t1"),
    "beat": lambda redis: protocol.beat(redis, [Heartbeat(Q, OURS, "i1", 1)], 8.5),
    "order": lambda redis: protocol.order(redis, Q, OURS, "drain", "ann"),
    "deregister": lambda redis: protocol.deregister(redis, Q, OURS, "i1"),
    "register anew": lambda redis: protocol.register(redis, Q, OURS, "i2", {}, 8.5, dead="i1"),
    "fence": lambda redis: protocol.fence(redis, Q, OURS, "i1", "0", 9.25),
    "recover": lambda redis: protocol.recover(redis, Q, "t1", OURS, "i1", 9.5),
    "claim": lambda redis: protocol.claim(redis, Q, ANOTHER, OURS, "i1"),
    "lose": lambda redis: protocol.lose(
        redis, AttemptRef(Q, "t1", "token", OURS), "i1", Loss("gone"), None, 9.5
    ),
    "lose and run again": lambda redis: protocol.lose(
        redis, AttemptRef(Q, "t1", "token", OURS), "i1", Loss("gone"), Retry(), 9.5
    ),
    "give up": lambda redis: protocol.lose(
        redis, AttemptRef(Q, "t1", "token", OURS), "i1", Loss("gone"), None, 9.5, is_ours=True
    ),
    "adopt": lambda redis: protocol.adopt(
        redis, AttemptRef(Q, "t1", "token", OURS), ANOTHER, "i3", 9.5
    ),
    "restore": lambda redis: protocol.restore(
        redis, AttemptRef(Q, "t1", "token", ANOTHER), "i3", 77, {}, 7.5, 9.5
    ),
    "reassert": lambda redis: protocol.reassert(redis, Q, "t1", OURS, "i1", FIELDS, 9.5),
    "deregister the dead": lambda redis: protocol.deregister(redis, Q, OURS, "i1", is_dead=True),
    "enqueue after": lambda redis: protocol.enqueue_after(redis, CHILDREN, 9.5),
    "settle": lambda redis: protocol.settle(redis, "t1", 9.5),
    "tell of the end": lambda redis: rechecking.tell(redis, "c1", TaskParent("t1"), 9.5),
    "recheck": lambda redis: protocol.recheck(redis, Q, "c1", 9.5),
    "recheck the other": lambda redis: protocol.recheck(redis, Q, "c2", 9.5),
    "unblock": lambda redis: protocol.unblock(redis, Q, "c1", 9.5, "ann"),
    "cancel what waits": lambda redis: protocol.cancel(redis, Q, "c1", "ann", None, 9.5),
    "requeue what waited": lambda redis: protocol.requeue(redis, Q, "c1", "mark", 9.5),
}
BEFORE = {
    "pending": [],
    "popped": ["pop"],
    "popped, dead": ["pop", "fence"],
    "reserved": ["pop", "reserve"],
    "reserved, dead": ["pop", "reserve", "fence"],
    "started": ["pop", "reserve", "start"],
    "started, to be cancelled": ["pop", "reserve", "start", "cancel"],
    "started, dead": ["pop", "reserve", "start", "fence"],
    "lost": ["pop", "reserve", "start", "fence", "lose"],
    "failed": ["pop", "reserve", "start", "fail"],
    "cancelled": ["cancel"],
    "awaited": ["enqueue after"],
    "awaited, complete": ["enqueue after", "pop", "reserve", "start", "complete"],
    "awaited, lost": ["enqueue after", "pop", "reserve", "start", "fence", "lose"],
    "awaited, lost and told": ["enqueue after", "pop", "reserve", "start", "give up", "settle"],
}

# claim looks twice, and if the list has changed it does nothing; settle is several transactions.
GIVING_WAY = {"claim", "settle"}


@pytest.mark.parametrize("before", BEFORE)
def test_whoever_is_overtaken_does_what_he_would_do_if_he_had_come_later(
    before, redis, other, overtaken, state
):
    protocol.register(redis, Q, OURS, "i1", {}, now=1.5)
    protocol.register(redis, Q, ANOTHER, "i3", {}, now=1.5)
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    for name in BEFORE[before]:
        CALLS[name](redis)
    found, seeding = state(), restoring(redis)

    def seed():
        redis.read(*seeding)

    def changes(name):
        seed()
        outcome(name)
        return state() != found

    def outcome(name):
        try:
            return CALLS[name](redis)
        except BluequeError as error:
            return repr(error)

    able = [name for name in CALLS if changes(name)]
    assert len(able) >= 3
    for name in [name for name in able if name not in GIVING_WAY]:
        for faster in able:
            seed()
            CALLS[faster](redis)
            later = outcome(name), state()
            seed()
            overtaken(lambda faster=faster: CALLS[faster](other))

            assert (outcome(name), state()) == later, f"{name}, overtaken by {faster}"
