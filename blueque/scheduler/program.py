"""The program `blueque-scheduler`: runs until SIGTERM or Ctrl-C, waits while Redis is away, and
reports to systemd.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time

from blueque.client import Client
from blueque.connection.address import hide_password
from blueque.errors import CLUSTER, Contended, RedisAway, RedisRefused
from blueque.node.reload import Check, note_directory, replace_program
from blueque.producer.schedule_file import SchedulesOfFile
from blueque.protocol import permissions
from blueque.scheduler.scheduler import COALESCE, Scheduler
from blueque.system import process, signals
from blueque.system.outage import Outage
from blueque.system.signals import StopRequest, request_stop
from blueque.system.systemd import Notifier
from blueque.task_process.import_ahead import import_for_daemon
from blueque.text.format import count
from blueque.version import __version__

LONGEST_PAUSE = 1.0  # while Redis is away: tasks may be due when it is back
SIGNS = 3  # that we give in the time in which systemd wants one

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGCHLD)
_NOT_ALLOWED = {"NOAUTH", "WRONGPASS", "NOPERM", *CLUSTER}

log = logging.getLogger("blueque")


class Program:
    """A scheduler as a process.

    address: of Redis and where that came from, to be shown.
    check: what SIGHUP begins; once it has passed, this program is replaced. None: SIGHUP does nothing.
    schedules: the recurring tasks to write to Redis at the start. None: none.
    """

    def __init__(
        self,
        client: Client,
        address: tuple[str, str] = ("", ""),
        check: Check | None = None,
        notifier: Notifier | None = None,
        schedules: SchedulesOfFile | None = None,
    ) -> None:
        self._client, self._address, self._check = client, address, check
        self._schedules = schedules
        self._notifier = notifier or Notifier({})
        self._scheduler = Scheduler(client, self._show_life)
        self._outage = Outage("Redis answers again")
        self._has_rights = False
        self._sign_at = 0.0  # when systemd is to see that we are not stuck
        self._signals: signals.Signals | None = None

    def run(self) -> int:
        """Serve until SIGTERM or Ctrl-C; return the exit status. Raises RedisRefused without a right."""
        url, source = self._address
        note_directory()
        import_for_daemon(url)
        log.info(
            "blueque-scheduler %s: %s (%s), pid %d",
            __version__,
            hide_password(url),
            source,
            os.getpid(),
        )
        before = {
            number: signal.signal(number, request_stop)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        self._signals = signals.Signals([signal.SIGUSR1, signal.SIGHUP, signal.SIGCHLD])
        signals.show_stacks_on(signal.SIGUSR1)
        try:
            signals.unblock(_SIGNALS)  # the program that this one has replaced holds them back
            while True:
                self._wait(self._notify(self._step_or_pause()))
                for number in self._signals.take():
                    self._obey(number)
        except StopRequest:
            self._notifier.tell("STOPPING=1")
            return 0
        finally:
            signals.show_no_stacks_on(signal.SIGUSR1)
            self._signals.restore()
            for number, handler in before.items():
                signal.signal(number, handler)
            self._scheduler.close()

    def _notify(self, seconds: float) -> float:
        """Report our state to systemd if it asks; return how long to wait, at most `seconds`."""
        if not self._notifier.is_wanted:
            return seconds
        state = (
            "waiting for Redis" if self._outage.is_on else count(self._scheduler.queues, "queue")
        )
        self._notifier.tell("READY=1", f"STATUS={state}")
        self._show_life()
        return min(seconds, max(self._sign_at - time.monotonic(), 0.0))

    def _show_life(self) -> None:
        if self._notifier.is_wanted and time.monotonic() >= self._sign_at:
            self._notifier.show_life()
            self._sign_at = time.monotonic() + self._notifier.watchdog / SIGNS

    def _obey(self, number: int) -> None:
        if number == signal.SIGUSR1:
            log.warning("SIGUSR1: the stacks are above")
        elif self._check is None:
            if number == signal.SIGHUP:
                log.warning("SIGHUP: restart the scheduler to read its configuration")
        elif number == signal.SIGHUP:
            log.warning("SIGHUP: checking the configuration")
            self._check.begin()
        elif self._check.poll():
            log.warning("the new configuration is in effect")
            self._become_new_program(self._check)

    def _become_new_program(self, check: Check) -> None:
        """Replace this program. Signals that come from now on wait for the new one."""
        with signals.blocked(_SIGNALS):
            replace_program(
                [sys.executable, *sys.orig_argv[1:]], {**os.environ, **self._notifier.environ}
            )
        check.forget()

    def _step_or_pause(self) -> float:
        try:
            if not self._has_rights:
                permissions.require_rights(self._client.connections, "scheduler", ["q"])
                self._has_rights = True
            if self._schedules is not None:
                self._schedules.apply(self._client.connections)
                self._schedules = None
            delay = self._scheduler.step()
        except (RedisAway, RedisRefused, Contended) as error:
            if (
                isinstance(error, RedisRefused)
                and error.code in _NOT_ALLOWED
                and not self._has_rights
            ):
                raise  # at the start: a person is there to read it
            # Its own connection has most likely broken too, and need not be found out about
            # separately.
            self._client.close()
            self._scheduler.reconnect()
            self._outage.note(error, "waiting")
            return min(self._outage.pause(), LONGEST_PAUSE)
        self._outage.note(None)
        return delay

    def _wait(self, seconds: float) -> None:
        started = time.monotonic()
        time.sleep(min(seconds, COALESCE))
        descriptors = [] if self._signals is None else [self._signals.fileno()]
        if (news := self._scheduler.fileno()) is not None:
            descriptors.append(news)
        process.wait_readable(descriptors, seconds - (time.monotonic() - started))
