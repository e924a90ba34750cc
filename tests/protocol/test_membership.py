"""blueque.protocol.membership against a real Redis; the whole state is compared, so that leftovers
fail too.
"""

from __future__ import annotations

from transactions import protocol

from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.membership import Heartbeat, order_of

NODE = "host_1"


def dead_listener(redis, *statuses):
    """Seed a listener host_2 that holds a task t1, t2, ... for each status, the oldest first."""
    protocol.register(redis, "video", "host_2", "i2", {}, now=1.5)
    for number, status in enumerate(statuses, 1):
        task, token = f"t{number}", f"token{number}"
        protocol.enqueue(redis, "video", task, "in", now=5.5)
        protocol.pop(redis, "video", "host_2", "i2")
        if status != "pending":
            protocol.reserve(redis, AttemptRef("video", task, token, "host_2"), "i2", now=6.5)
        if status == "started":
            protocol.start(redis, AttemptRef("video", task, token, "host_2"), 77, now=7.5)


def claim(redis):
    return protocol.claim(redis, "video", NODE, "host_2", "i2")


def test_a_dead_listener_with_a_task_that_it_never_reserved_stays_known(redis, state):
    dead_listener(redis, "pending")
    before = state()

    assert claim(redis) is None
    assert state() == before


def test_a_reserved_task_that_we_have_claimed_is_ours_again_and_nothing_else_happens(redis, state):
    dead_listener(redis, "started", "reserved")
    assert claim(redis) == "t2"
    before = state()

    assert claim(redis) == "t2"
    assert state() == before


def test_a_beat_tells_how_the_task_stands_that_a_listener_watches(redis):
    dead_listener(redis, "started")

    standing, lost = protocol.beat(redis, [Heartbeat("video", "host_2", "i2", 5)], 9.5, "t1")

    assert (standing.status, standing.token, standing.node) == ("started", "token1", "host_2")
    assert (standing.held, lost) == ((("video", "t1"),), [])


def test_of_the_orders_in_several_queues_a_listener_obeys_drain_first():
    orders = [[None, None], [None, "pause", "leave"], ["pause", None, "drain"]]

    assert [order_of(each) for each in orders] == [None, "pause", "drain"]
