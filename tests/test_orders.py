"""The one place where a listener waits."""

from __future__ import annotations

import time

from blueque.errors import RedisAway
from blueque.orders import Orders
from blueque.trouble import Trouble


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

    assert time.monotonic() - began < 5.0              # the pauses alone would be 12 s at least
