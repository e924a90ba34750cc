"""The one place where a listener waits."""

from __future__ import annotations

import os
import signal
import time

import pytest

from blueque.errors import RedisAway
from blueque.node.control import OF_MASTER, Order, Orders
from blueque.system.outage import Trouble


def test_what_goes_on_meanwhile_is_not_put_off_by_a_long_pause():
    orders, calls = Orders(None, obeys_terminal=False, on_child_end=lambda: None), []

    def fail_at_first() -> str:
        if len(calls) < 8:
            raise RedisAway("not now")
        return "done"

    def meanwhile() -> float:
        calls.append(time.monotonic())
        return 0.01

    began = time.monotonic()
    assert orders.insist(fail_at_first, Trouble("well again"), meanwhile=meanwhile) == "done"

    assert time.monotonic() - began < 5.0  # the pauses alone would be 12 s at least
    orders.pause.close()


@pytest.mark.parametrize("has_master", [False, True])
def test_a_program_of_ones_own_keeps_its_handler_of_a_signal_that_only_a_master_sends(has_master):
    came, lifeline = [], os.pipe()
    before = {number: signal.getsignal(number) for number in OF_MASTER}
    signal.signal(signal.SIGUSR2, lambda *_: came.append(1))
    orders = Orders(
        lifeline[0] if has_master else None, obeys_terminal=False, on_child_end=lambda: None
    )
    orders.open()
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        orders.look(0)
        assert (len(came), orders.now) == ((0, Order.DRAIN) if has_master else (1, Order.WORK))
    finally:
        orders.close()
        orders.pause.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        for descriptor in lifeline:
            os.close(descriptor)
