"""The look at the machine while chaos goes on."""

from __future__ import annotations

import signal
import time

from running import TEST_PATHS, Programs, state_of, until

WATCH = f"""
    import sys, time
    sys.path[:0] = {TEST_PATHS!r}
    from chaos_stalls import stalls_noted

    with stalls_noted(lambda since, until: print(until - since, flush=True)):
        print("null", flush=True)
        time.sleep(1000)
"""


def test_it_is_noted_for_how_long_the_machine_stood_still(tmp_path):
    with Programs("redis://127.0.0.1:1", tmp_path) as programs:
        watch = programs.script(WATCH)
        until(watch.said)
        watch.send(signal.SIGSTOP)
        until(lambda: state_of(watch.pid) == "T")
        time.sleep(0.5)

        watch.send(signal.SIGCONT)

        assert until(lambda: [seconds for seconds in watch.said()[1:] if seconds >= 0.5])
