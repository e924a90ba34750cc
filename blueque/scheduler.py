"""The scheduler: puts scheduled tasks in line when they are due, and wakes listeners for what 1.0.0 enqueues.

Any number may run: each move is guarded, so the first one wins and the others find nothing to do.
"""

from __future__ import annotations

import logging
import os
import signal
import time

from blueque import process
from blueque.address import hide_password
from blueque.client import Client
from blueque.errors import Contended, InvalidInput, RedisAway, RedisRefused
from blueque.trouble import Trouble
from blueque.version import __version__

log = logging.getLogger("blueque")

POLL = 1.0                                             # between two looks where Redis does not tell of changes
LOOK_AT_ALL = 10.0                                     # between two looks at everything where it does
CLOCK_CHECK = 1.0                                      # a wall clock may be set while we wait for an eta
COALESCE = 0.05                                        # changes that come closer than this are looked at together


class Scheduler:
    """Serves every queue in `blueque_queues`.

    address: of Redis and where that came from, to be shown.
    """

    def __init__(self, client: Client, address: tuple[str, str] = ("", "")) -> None:
        self._client, self._address = client, address
        self._lookout = client.get_lookout()
        self._trouble = Trouble("Redis answers again")
        self._look_at_all = 0.0
        self._foreign: set[str] = set()

    def step(self) -> float:
        """Do what is due now; return for how many seconds there is nothing to do, if nothing changes. Raises RedisAway."""
        is_whole = time.monotonic() >= self._look_at_all
        for name in sorted(self._lookout.refresh(is_whole)):
            if self._lookout.views[name].is_pending and not self._is_foreign(name):
                self._client.get_queue(name).wake_listener()
        if is_whole:
            self._look_at_all = time.monotonic() + (LOOK_AT_ALL if self._lookout.is_tracking else POLL)
        now = time.time()
        views = {name: view for name, view in self._lookout.views.items() if not self._is_foreign(name)}
        etas = {name: view.next_eta for name, view in views.items() if view.next_eta is not None}
        due = [name for name, eta in etas.items() if eta <= now]
        for name in sorted(due, key=lambda name: etas[name]):
            self._client.get_queue(name).enqueue_due_tasks()
        if due:
            self._look_at_all = 0.0                    # see what comes next
            return 0.0
        waits = [eta - now for eta in etas.values()]
        return max(0.0, min([self._look_at_all - time.monotonic(), *waits, *([CLOCK_CHECK] if waits else [])]))

    def _is_foreign(self, name: str) -> bool:
        """Tell whether no queue of ours can have this name: another program has put it there."""
        if name in self._foreign:
            return True
        try:
            self._client.get_queue(name)
        except InvalidInput as error:
            log.warning("leaving a queue alone: %s", error)
            self._foreign.add(name)
            return True
        return False

    def run(self) -> int:
        """Serve until SIGTERM or Ctrl-C; return the exit status."""
        url, source = self._address
        log.info("blueque-scheduler %s: %s (%s), pid %d", __version__, hide_password(url), source, os.getpid())
        signals = process.Signals([signal.SIGTERM, signal.SIGINT])
        try:
            while not signals.take():
                try:
                    delay = self.step()
                    self._trouble.tell(None)
                except (RedisAway, RedisRefused, Contended) as error:
                    self._trouble.tell(str(error), "waiting")
                    delay = self._trouble.pause()
                self._wait(signals, delay)
        finally:
            signals.restore()
            self._lookout.close()
        return 0

    def _wait(self, signals: process.Signals, seconds: float) -> None:
        started = time.monotonic()
        if process.wait_readable([signals.fileno()], min(seconds, COALESCE)):
            return
        news = self._lookout.fileno()
        descriptors = [signals.fileno(), *([] if news is None else [news])]
        process.wait_readable(descriptors, seconds - (time.monotonic() - started))
