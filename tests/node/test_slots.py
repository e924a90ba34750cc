"""The slots of a master that has replaced another program."""

from __future__ import annotations

import os
import time

import pytest

from blueque.node import context
from blueque.node.control import Pause
from blueque.node.reload import Kept
from blueque.node.slots import Callbacks, Slots


@pytest.fixture
def child():
    pid = os.fork()
    if not pid:
        os._exit(0)
    yield pid
    os.waitpid(pid, 0)


def slots_after(kept: Kept) -> Slots:
    known = context.Master(os.getpid(), -1, -1, Pause())
    slots = Slots(lambda _: 0, 1, Callbacks(), known, lambda: None, kept)
    slots.open()
    return slots


def is_full(slots: Slots) -> bool:
    return slots.wake_at(time.monotonic()) == float("inf")


def test_a_listener_of_the_program_before_has_its_slot_until_it_ends(child):
    slots = slots_after(Kept(0.0, None, [child], []))
    assert (is_full(slots), slots.pids, slots.count_shown()) == (True, [child], (1, 0))
    born = slots.forget(child)
    assert born is not None
    assert slots.replace(child, born, 0)
    assert (is_full(slots), slots.pids) == (False, [])
    slots.close_in_child()


def test_one_that_only_adopts_has_no_slot_after_it_either(child):
    slots = slots_after(Kept(0.0, None, [], [child]))
    assert (is_full(slots), slots.pids, slots.count_shown()) == (False, [child], (1, 1))
    assert slots.forget(child) is None
    slots.close_in_child()
