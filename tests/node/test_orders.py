"""What a listener is told by signals."""

from __future__ import annotations

import os
import signal

import pytest

from blueque.node.control import OF_MASTER, Order, Orders


@pytest.mark.parametrize("has_master", [False, True])
def test_a_program_of_ones_own_keeps_its_handler_of_a_signal_that_only_a_master_sends(has_master):
    came, lifeline = [], os.pipe()
    before = {number: signal.getsignal(number) for number in OF_MASTER}
    signal.signal(signal.SIGUSR2, lambda *_: came.append(1))
    orders = Orders(lifeline[0] if has_master else None)
    orders.open()
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        for number in orders.signals.take():
            orders.obey(number)
        assert (len(came), orders.now) == ((0, Order.DRAIN) if has_master else (1, Order.WORK))
    finally:
        orders.close()
        orders.pause.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        for descriptor in lifeline:
            os.close(descriptor)
