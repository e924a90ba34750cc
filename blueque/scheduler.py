"""The scheduler: puts scheduled tasks in line when they are due, wakes listeners for what 1.0.0
enqueues, makes the tasks of schedules, tells tasks of the ends for which they wait, judges listeners,
ends tasks that have not started in time, deletes finished tasks that have been kept long enough.

Any number may run: each move is guarded, so the first one wins and the others find nothing to do.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from blueque.client import Client
from blueque.connection.address import hide_password
from blueque.errors import CLUSTER, Contended, InvalidInput, RedisAway, RedisRefused
from blueque.node.reload import Check, note_directory, replace_program
from blueque.producer.firing import Firing
from blueque.producer.queue import Queue
from blueque.producer.schedule_file import SchedulesOfFile
from blueque.protocol import permissions
from blueque.queries.beats import Beats
from blueque.queries.queue_changes import Lookout
from blueque.queries.schedules import clock_of
from blueque.recovery.dependents import AT_ONCE, GRACE, Dependents
from blueque.recovery.expiry import Expiry
from blueque.recovery.judge import Recovery
from blueque.recovery.observed import LOOK_AT_STARTED
from blueque.recovery.retention import Retention
from blueque.system import process, signals
from blueque.system.outage import Outage
from blueque.system.systemd import Notifier
from blueque.task_process.import_ahead import import_for_daemon
from blueque.text.format import count
from blueque.version import __version__

log = logging.getLogger("blueque")

POLL = 1.0  # between two looks where Redis does not tell of changes
LOOK_AT_ALL = 60.0  # between two looks at everything where it does
COALESCE = 0.05  # changes that come closer than this are looked at together
LONGEST_PAUSE = 1.0  # while Redis is away: tasks may be due when it is back
RECHECK_EVERY = 1.0  # between two looks at blocked tasks
PRUNE_EVERY = 60.0  # between two looks at what has been kept long enough
SIGNS = 3  # that we give in the time in which systemd wants one
REFUSED_PAUSE = 5.0  # before a queue that Redis refuses to serve is tried again

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGCHLD)
_NOT_ALLOWED = {"NOAUTH", "WRONGPASS", "NOPERM", *CLUSTER}


class _Stop(BaseException):
    """A signal has come. It may interrupt anything here: every change is one guarded transaction."""


class Scheduler:
    """Serves every queue in `blueque_queues`.

    address: of Redis and where that came from, to be shown.
    check: what SIGHUP begins; once it has passed, this program is replaced. None: SIGHUP does
        nothing.
    schedules: the recurring tasks to bring to Redis at the start. None: none.
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
        self._rules = client.retention_rules
        self._notifier = notifier or Notifier({})
        self._has_rights = False
        self._sign_at = 0.0  # when systemd is to see that we are not stuck
        self._signals: signals.Signals | None = None
        self._lookout = Lookout(client.connections.connect)
        self._beats = Beats(client.connections.connect)
        self._outage = Outage("Redis answers again")
        self._look_at_all = self._settle_at = self._recheck_at = 0.0
        self._clock = 0.0  # what the clock of Redis shows when the monotonic clock is at 0
        # queue -> when to try it again, on the monotonic clock
        self._left_alone: dict[str, float] = {}
        # A look that is tried again by itself would hide that Redis was away, so these have no
        # patience.
        self._judging = client.with_patience(0)
        self._dependents = Dependents(self._judging.connections)
        self._firing = Firing(self._judging.connections)
        self._fire_at = 0.0  # when the task of a schedule is due, on the monotonic clock
        self._are_groups_due = False
        self._group_at = 0.0  # when a group is to be looked at, in Unix seconds
        self._retention = Retention(self._judging.connections, {})
        self._prune_at = time.monotonic() + PRUNE_EVERY  # at the start there is other work
        self._expiry = Expiry(self._judging.connections)
        self._expire_at = 0.0
        self._recovery = Recovery(self._judging.connections, self._beats.observe)
        self._observed: set[str] = set()  # queues with listeners, as far as we know
        self._judge_at: dict[str, float] = {}  # queue -> when to look at its listeners again
        self._judged: dict[str, float] = {}  # queue -> how many it had at the last look

    def step(self) -> float:
        """Do what is due now; return for how many seconds there is nothing to do, if nothing
        changes. Raises RedisAway.
        """
        is_whole = time.monotonic() >= self._look_at_all
        looked_at = self._lookout.refresh(is_whole)
        if is_whole:
            self._look_at_all = time.monotonic() + (
                LOOK_AT_ALL if self._lookout.is_tracking else POLL
            )
        for name in sorted(looked_at):
            if self._lookout.views[name].is_pending:
                self._try(name, lambda queue: queue.wake_listener())
            elif self._lookout.views[name].refusal is not None:
                self._leave_alone(name, self._lookout.views[name].refusal)
        self._judge()
        if is_whole:
            self._look_at_clock()
        etas = {
            name: view.next_eta
            for name, view in self._lookout.views.items()
            if view.next_eta is not None and not self._is_left_alone(name)
        }
        if self._clock + time.monotonic() >= min(etas.values(), default=float("inf")):
            self._look_at_clock()  # it may have been wrong for a moment
        now = self._clock + time.monotonic()
        due = sorted(
            [name for name, eta in etas.items() if eta <= now], key=lambda name: etas[name]
        )
        for name in due:
            self._try(name, lambda queue: queue.enqueue_due_tasks(now))
            self._lookout.look_again_at(name)
        self._recheck(now)
        is_firing = self._fire()
        if due or self._settle() or is_firing:
            return 0.0  # see what comes next
        if time.monotonic() >= self._expire_at:
            self._expire_at = time.monotonic() + self._expiry.step()
        self._prune()
        if self._lookout.has_news():
            return COALESCE
        waits = [eta - now for eta in etas.values()]
        waits += [
            max(view.next_recheck - now, self._recheck_at - time.monotonic())
            for name, view in self._lookout.views.items()
            if view.next_recheck is not None and not self._is_left_alone(name)
        ]
        waits += [
            at - time.monotonic()
            for name, at in self._left_alone.items()
            if self._is_left_alone(name)
        ]
        duties = [
            at - time.monotonic()
            for at in (
                self._look_at_all,
                self._prune_at,
                self._fire_at,
                self._expire_at,
                *self._judge_at.values(),
            )
        ]
        if self._lookout.is_unsettled:
            duties.append(self._settle_at - time.monotonic())
        duties.append(self._group_at - time.time())
        return max(0.0, min([*duties, *waits]))

    def _look_at_clock(self) -> None:
        """See what is due by the clock of Redis: ours may be an hour ahead."""
        self._clock = clock_of(self._judging.connections) - time.monotonic()

    def _fire(self) -> bool:
        """Make the tasks of a hundred schedules that are due. Return whether there may be more."""
        if not self._lookout.is_replanned and time.monotonic() < self._fire_at:
            return False
        try:
            wait = self._lookout.next_occurrence()
            self._firing.note(None)
            if wait is not None and wait <= 0:
                wait = self._firing.step()
        except Contended as error:  # others do the same
            log.debug("fire: %s", error)
            wait = 0.0
        except RedisRefused as error:
            if not self._firing.note(error):
                raise
            wait = LOOK_AT_ALL
        # The clock of Redis may be set, and is looked at each minute.
        self._fire_at = time.monotonic() + min(LOOK_AT_ALL if wait is None else wait, LOOK_AT_ALL)
        return wait == 0.0

    def _settle(self) -> bool:
        """Tell some dependents of tasks that have ended, if the listeners of these have not done so.
        Return whether there may be more.
        """
        if not (self._dependents.has_work or self._are_groups_due):
            self._look_for_ends()
        is_more = False
        try:
            is_more = self._dependents.step()
            if self._are_groups_due:
                self._are_groups_due = False
                self._are_groups_due = self._dependents.step_of_groups()
        except Contended as error:  # others do the same
            log.debug("settle: %s", error)
        except RedisRefused as error:
            if not error.is_wrong_type:
                raise
            log.warning("cannot settle groups: %s", error)
        return is_more or self._are_groups_due

    def _look_for_ends(self) -> None:
        """Find ends that those whose tasks they were have not settled, and groups."""
        is_due = self._lookout.is_unsettled and time.monotonic() >= self._settle_at
        if not is_due and time.time() < self._group_at:
            return
        self._settle_at, now = time.monotonic() + GRACE, time.time()
        self._group_at = now + LOOK_AT_ALL
        try:
            found = self._lookout.unsettled(self._dependents.limit)
        except RedisRefused as error:  # a key of a wrong type
            log.warning("cannot see which ends are not settled: %s", error)
            self._settle_at = time.monotonic() + LOOK_AT_ALL
            return
        ended = [task for task, at in found.tasks.items() if at <= now - GRACE]
        self._dependents.note(ended)
        if len(ended) >= AT_ONCE and self._dependents.has_work:
            self._settle_at = 0.0  # there may be more
        if found.group_at is not None:
            self._group_at = min(found.group_at, self._group_at)
        self._are_groups_due = found.has_members or self._group_at <= now
        self._group_at = max(self._group_at, now + GRACE)

    def _recheck(self, now: float) -> None:
        """Compare blocked tasks whose turn it is with those for which they wait."""
        if time.monotonic() < self._recheck_at:
            return
        due = [
            name
            for name, view in self._lookout.views.items()
            if view.next_recheck is not None
            and view.next_recheck <= now
            and not self._is_left_alone(name)
        ]
        for name in due:
            self._try(name, lambda queue: self._dependents.recheck([queue.name]))
            self._lookout.look_again_at(name)
        if due:
            self._recheck_at = time.monotonic() + RECHECK_EVERY

    def _prune(self) -> None:
        """Delete some of what has been kept long enough."""
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + PRUNE_EVERY
        names = [name for name, view in self._lookout.views.items() if view.refusal is None]
        self._retention.serve(self._rules(names))
        try:
            if self._retention.step():
                self._prune_at = time.monotonic() + self._retention.rest
        except Contended as error:  # others do the same
            log.debug("prune: %s", error)

    def _judge(self) -> None:
        """Look at the listeners of the queues whose turn it is, and see to what the dead have left."""
        for gone in self._judge_at.keys() - self._lookout.views.keys():
            self._recovery.forget(gone)
            self._beats.forget(gone)
            self._observed.discard(gone)
            del self._judge_at[gone], self._judged[gone]
        due = [name for name in self._lookout.views if self._is_to_be_judged(name)]
        strange = [name for name in due if name not in self._observed]
        empty = set(strange).difference(self._beats.with_listeners(strange))
        for name in due:
            if name in empty:
                self._judged[name] = self._lookout.listeners.get(name, 0.0)
                self._judge_at[name] = time.monotonic() + LOOK_AT_STARTED
            else:
                self._try(name, self._judge_one)

    def _is_to_be_judged(self, name: str) -> bool:
        is_due = time.monotonic() >= self._judge_at.get(name, 0.0)
        has_changed = self._judged.get(name) != self._lookout.listeners.get(name)
        return (is_due or has_changed) and not self._is_left_alone(name)

    def _judge_one(self, queue: Queue) -> None:
        name = queue.name
        self._observed.add(name)
        self._judged[name] = self._lookout.listeners.get(name, 0.0)
        self._judge_at[name] = time.monotonic() + LONGEST_PAUSE  # should the look fail
        self._recovery.step([name])
        self._judge_at[name] = time.monotonic() + self._recovery.rest([name])

    def run(self) -> int:
        """Serve until SIGTERM or Ctrl-C; return the exit status. Raises RedisRefused when we are
        not allowed to.
        """
        url, source = self._address
        note_directory()
        import_for_daemon()
        log.info(
            "blueque-scheduler %s: %s (%s), pid %d",
            __version__,
            hide_password(url),
            source,
            os.getpid(),
        )
        before = {
            number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGINT)
        }
        self._signals = signals.Signals([signal.SIGUSR1, signal.SIGHUP, signal.SIGCHLD])
        signals.show_stacks_on(signal.SIGUSR1)
        try:
            signals.unblock(_SIGNALS)  # the program that this one has replaced holds them back
            while True:
                self._wait(self._notify(self._step_or_pause()))
                for number in self._signals.take():
                    self._obey(number)
        except _Stop:
            self._notifier.tell("STOPPING=1")
            return 0
        finally:
            signals.show_no_stacks_on(signal.SIGUSR1)
            self._signals.restore()
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()

    def close(self) -> None:
        """Close the connections of our own."""
        self._lookout.close()
        self._beats.close()
        self._judging.close()

    def _notify(self, seconds: float) -> float:
        """Tell systemd how we are, if it wants to know; return for how many of the seconds it may
        go without a sign.
        """
        if not self._notifier.is_wanted:
            return seconds
        state = (
            "waiting for Redis" if self._outage.is_on else count(len(self._lookout.views), "queue")
        )
        self._notifier.tell("READY=1", f"STATUS={state}")
        self._give_sign()
        return min(seconds, max(self._sign_at - time.monotonic(), 0.0))

    def _give_sign(self) -> None:
        if self._notifier.is_wanted and time.monotonic() >= self._sign_at:
            self._notifier.show_life()
            self._sign_at = time.monotonic() + self._notifier.watchdog / SIGNS

    def _obey(self, number: int) -> None:
        if number == signal.SIGUSR1:
            log.warning("SIGUSR1: our stacks are above")
        elif self._check is None:
            if number == signal.SIGHUP:
                log.warning("SIGHUP: start the scheduler again to have it read its configuration")
        elif number == signal.SIGHUP:
            log.warning("SIGHUP: checking the configuration")
            self._check.begin()
        elif self._check.poll():
            log.warning("the new configuration holds from now on")
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
                permissions.require_rights(self._client.connections, permissions.SCHEDULER, ["q"])
                self._has_rights = True
            if self._schedules is not None:
                self._schedules.apply(self._client.connections)
                self._schedules = None
            delay = self.step()
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
            self._judging.close()
            self._beats.close()
            self._outage.note(error, "waiting")
            return min(self._outage.pause(), LONGEST_PAUSE)
        self._outage.note(None)
        return delay

    def _try(self, name: str, action: Callable[[Queue], object]) -> None:
        """Do something for a queue; what is wrong with one must not keep the others waiting."""
        self._give_sign()  # there may be many, with much to do
        try:
            action(self._client.get_queue(name))
        except (RedisRefused, InvalidInput) as error:  # InvalidInput: a name of another program's
            self._leave_alone(name, str(error))
        else:
            self._left_alone.pop(name, None)

    def _leave_alone(self, name: str, reason: str | None) -> None:
        if name not in self._left_alone:
            log.warning("leaving queue %r alone: %s", name, reason)
        self._left_alone[name] = time.monotonic() + REFUSED_PAUSE

    def _is_left_alone(self, name: str) -> bool:
        return time.monotonic() < self._left_alone.get(name, 0.0)

    def _wait(self, seconds: float) -> None:
        started = time.monotonic()
        time.sleep(min(seconds, COALESCE))
        descriptors = [] if self._signals is None else [self._signals.fileno()]
        if (news := self._lookout.fileno()) is not None:
            descriptors.append(news)
        process.wait_readable(descriptors, seconds - (time.monotonic() - started))


def _stop(number: int, frame: object) -> None:
    for other in (signal.SIGTERM, signal.SIGINT):  # a second one shall not disturb our leaving
        signal.signal(other, signal.SIG_IGN)
    raise _Stop
