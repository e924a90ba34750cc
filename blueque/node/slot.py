"""Slot: one listener at work. Adopt, reserve, fork, start, watch, report, again.

It runs no user code and never blocks where a signal, its next beat or the end of its task could not
reach it: it waits in one place, `waiting`, for whichever comes first. `supervisor` has what it does
while an attempt runs.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from blueque.client import Client
from blueque.errors import CLUSTER, Contended, NotOwner, NotRegistered, RedisAway, RedisRefused
from blueque.listener.resources import Pool
from blueque.model.limits import of
from blueque.model.lines import parse_needs
from blueque.model.selection import Select
from blueque.model.task import Task
from blueque.node.adoption import Adoption, Candidate
from blueque.node.attempt_watch import Watch, tree_of
from blueque.node.control import Order, OrderCame, Orders, Pause
from blueque.node.duties import Duties
from blueque.node.launcher import LOOK_FOR_ROOM, Launcher
from blueque.node.options import Defaults
from blueque.node.prefork import Spare, Spares
from blueque.node.registry import Roster
from blueque.node.supervisor import Attending
from blueque.node.waiting import Waiting
from blueque.spool.attempt import Attempt
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.system.outage import Trouble
from blueque.system.process_tree import Tree

log = logging.getLogger("blueque")

# Redis will not change its mind about these by itself.
_NOT_ALLOWED = {"NOAUTH", "WRONGPASS", "NOPERM", "ERR", *CLUSTER}
SHORT = 1.0  # a task that took less than this is followed by many like it
NEW, READY, BUSY = range(3)  # what a slot is: not registered yet, without a task, with one
BURST = 8  # how many task processes are forked in a row for short tasks


class Master(NamedTuple):
    """What a slot knows of the master that forked it.

    lifeline: a pipe that hangs up when the master dies; a slot without a master leaves after its
        task.
    requests: a pipe to it; a number in it says how many attempts there are that we cannot adopt
        ourselves.
    adopts_only: take nothing from the line; adopt one attempt, if there is one, and leave when it
        has ended.
    pause: while there is one, take nothing.
    max_runtime: after how many seconds it leaves.
    show: takes NEW, READY or BUSY, for it to see.
    """

    pid: int
    lifeline: int
    requests: int
    adopts_only: bool = False
    pause: Pause | None = None
    max_runtime: float | None = None
    show: Callable[[int], object] = lambda _: None


class Slot:
    """One listener, of one queue or several, with its task.

    select: from which of several queues it takes, see selection.py.
    life: what a task process does from its fork to its exit status, as `task_process.main`, given
        all but the work.
    is_warm: whether it prepares its work before there is any.
    kinds: of each queue the first one that has the same handler; none: all queues have the same.
    burst: how many task processes are forked in a row for short tasks.
    pool: what the node has for tasks that need some of it.
    until_empty: leave when there is nothing to take.
    master: None in a program of the user's own, whose other children are not ours.
    """

    def __init__(
        self,
        client: Client,
        queues: Sequence[str],
        life: Callable[[Spool, int, str | None], int],
        spool: Spool,
        defaults: Defaults,
        *,
        select: Select | None = None,
        is_warm: bool = True,
        kinds: Mapping[str, str] = MappingProxyType({}),
        burst: int = BURST,
        pool: Pool | None = None,
        until_empty: bool = False,
        master: Master | None = None,
        obeys_terminal: bool = False,
    ) -> None:
        # No patience: it would sleep where no signal reaches it, and say each time what we say
        # once.
        self._client = client.with_patience(0)
        self._life = life
        self._spool = spool
        self._defaults = defaults
        self._listeners = self._client.get_listener_group(queues, select)
        for listener in self._listeners:
            listener.pool, listener.newest_attempts = pool, spool.newest
        self._master = master
        self._orders = Orders(
            master.lifeline if master else None,
            obeys_terminal,
            self._bury,
            master.pause if master else None,
            master.max_runtime if master else None,
        )
        self._roster = Roster(spool.root)
        self._until_empty = until_empty
        self.has_emptied = False  # there was nothing to take, and so we leave
        self._show = master.show if master is not None else lambda _: None
        self._trouble = Trouble("Redis answers again")
        self._spool_trouble = Trouble("there is room again")
        self._duties = Duties(
            self._client,
            self._listeners,
            defaults,
            spool,
            self._orders,
            self._trouble,
            self._on_beat,
        )
        self._waiting = Waiting(self._orders, self._duties, self._listeners, self._trouble)
        self._adoption = Adoption(
            self._listeners, self._client.get_inspector(), spool, self._roster
        )
        self._attending = Attending(
            self._client,
            self._listeners,
            defaults,
            self._orders,
            self._duties,
            self._waiting,
            self._children,
            self._call_for_adopters,
            self._see_to_unwatched,
            self._trouble,
        )
        self._kinds = {queue: kinds.get(queue, queues[0]) for queue in queues}
        self._kind = queues[0]  # of our last task; before the first, the only one that there is
        is_only = len({*self._kinds.values()}) == 1
        self._spares = Spares(self._become_task_process, is_warm, self._kind if is_only else None)
        self._burst = burst
        self._pool = pool
        self._launcher = Launcher(
            self._client,
            self._listeners,
            spool,
            self._spares,
            pool,
            defaults,
            self._orders,
            self._waiting,
            self._spool_trouble,
        )
        self._task_pid: int | None = None
        self._stillborn = 0  # task processes, one after the other, that died before they began
        self._are_tasks_short = False

    def run(self) -> bool:
        """Work until told to leave; return whether that was an order left for us in Redis.

        Raises RedisRefused at the start when there is no hope of ever working, SpoolRefused.
        """
        self._spool.open()
        if self._pool is not None:
            self._pool.open()
            self._pool.declare()
        if self._master is not None:
            process.become_subreaper()
            self._join_roster(self._master.pid)
        self._client.wait_with(self._waiting.has_answer)
        self._orders.open()
        try:
            require_rights = functools.partial(
                self._client.require_rights_of_listener, self._listeners.queues
            )
            self._waiting.retry_until_order(require_rights, Order.DRAIN, _NOT_ALLOWED)
            self._waiting.register(fatal=_NOT_ALLOWED)
            self._show(READY)
            self._work_until_told()
            self._duties.end()
            self._waiting.retry_until_order(self._listeners.leave, Order.DRAIN)
        except OrderCame:
            log.warning("leaving node=%s without taking leave of Redis", self._listeners.node)
        finally:
            self._orders.close()
            for pid in self._spares.dismiss():
                self._spool.remove_blank(pid)
            self._spool.close()
            if self._pool is not None:
                self._pool.withdraw()
            if self._master is not None:
                self._roster.leave()
        return self._duties.is_drained

    def _join_roster(self, master: int) -> None:
        try:
            self._roster.join(self._listeners.queues, master)
        except OSError as error:  # a full disk: left behind, we would not be counted as a slot
            log.warning("cannot be put on the roster of %s: %s", self._spool.root, error.strerror)

    def _work_until_told(self) -> None:
        self._duties.look_after_others()
        while self._orders.now is Order.WORK:
            if self._adopt():  # before anything is reserved
                continue
            if self._master is not None and self._master.adopts_only:
                return
            self._have_spares()
            task = self._next_task()
            if task is not None:
                self._show(BUSY)
                self._run(task)
                self._show(READY)

    # What others have left

    def _adopt(self) -> bool:
        """Take over one attempt that nobody watches, if there is one, and see it to its end."""
        unwatched = self._duties.take_unwatched()
        self._waiting.retry_registered(lambda: self._put_back(unwatched))
        candidates = self._waiting.retry_registered(
            lambda: self._adoption.candidates(self._duties.take_orphans())
        )
        for number, candidate in enumerate(candidates):
            watch = self._waiting.retry_registered(functools.partial(self._take_over, candidate))
            if watch is not None:
                self._ask_for_help(len(candidates) - number - 1)
                self._task_pid = watch.pid if watch.is_child else None
                self._show(BUSY)
                self._attending.attend(watch)
                self._show(READY)
                self._task_pid = None
                self._bury()  # those that came after it had to wait for it
                self._tell_of_resources(watch.task)
                return True
        return False

    def _take_over(self, candidate: Candidate) -> Watch | None:
        task, attempt, pid, kind = candidate
        taken: Task | None = task
        seen = None
        tree = tree_of(task, pid)  # before it is ours: it may end the moment that it is
        if kind == "orphan":
            seen = (
                self._client.get_inspector()
                .registration(task.queue or "", task.node or "")
                .get("beat_at")
            )
            taken = self._listeners.of(task.queue).adopt(task)
        elif kind == "unstarted":
            taken = self._listeners.of(task.queue).reassert(task, pid)
        elif kind == "lost" and process.is_alive(pid, task.fields):
            taken = self._listeners.of(task.queue).restore(task, pid, time.time())
        if taken is None:
            return None
        # and not a later one with its pid
        is_same = str(process.start_ticks(pid)) == taken.fields.get("pid_start")
        is_child = is_same and process.parent(pid) == os.getpid()
        watch = self._watch(taken, attempt, pid, is_child, tree)
        if watch.pidfd is None:  # else, should it be lost, it is lost with us
            watch.lost_with = {
                "lost_node": task.node or "",
                **({"last_seen": seen} if seen else {}),
            }
        if kind == "superseded":
            watch.end(
                "superseded", "the task has been run again, or was ended, without this attempt"
            )
        elif taken.cancel is not None:  # the order went to the listener that died
            watch.end("cancelled", "cancelled")
        return watch

    def _call_for_adopters(self) -> None:
        """Busy ourselves, have the master fork a listener for each attempt that could be adopted
        here.
        """
        orphans = self._duties.take_orphans()
        self._ask_for_help(
            sum(self._spool.find(task.id, task.token) is not None for task in orphans)
        )

    def _see_to_unwatched(self, watched: str) -> None:
        """Busy: report again the ends that Redis has lost; what still runs is watched once our task
        has ended.
        """
        try:
            self._put_back(self._duties.take_unwatched())
            for candidate in self._adoption.of_our_lists(watched):
                if candidate.pid and process.is_alive(candidate.pid, candidate.task.fields):
                    continue
                watch = self._take_over(candidate)
                if watch is not None:
                    self._attending.report_once(watch)
        except (RedisAway, RedisRefused, Contended, NotRegistered) as error:
            log.warning("%s; the next beat will try again", error)

    def _put_back(self, unwatched: Sequence[tuple[str, str]]) -> None:
        for queue, task in unwatched:
            self._listeners.of(queue).put_back(task)

    def _ask_for_help(self, count: int) -> None:
        if count > 0 and self._master is not None:
            try:
                os.write(self._master.requests, b"%d\n" % count)
            except OSError:  # it has been asked so often that the pipe is full, or it is gone
                pass

    # Getting a task

    def _next_task(self) -> Task | None:
        """Return a reserved task, or None when told to leave or when there is something to adopt."""
        may_take, duty = True, "take"
        while self._orders.now is Order.WORK:
            self._waiting.wait(0)  # an order may have come while we were busy
            if (
                self._orders.now is not Order.WORK
                or self._duties.has_orphans
                or self._duties.has_unwatched()
            ):
                return None
            want = self._spool.want_of_room()
            if want is not None and not self._spool_trouble.is_on:
                want = self._make_room()
            try:
                if self._spool_trouble.tell(want, "taking nothing new"):
                    self._listeners.decline()
                    self._rest(LOOK_FOR_ROOM)
                    may_take = True
                    continue
                if self._orders.is_paused and not self._until_empty:
                    self._sit_out()
                    may_take = True
                    continue
                if may_take and not self._orders.is_paused:
                    duty = "take"
                    task = self._listeners.take()
                    self._trouble.tell(None, duty=duty)
                    if task is not None:
                        return task
                if self._until_empty and (self._orders.is_paused or self._is_empty()):
                    self._leave_empty()
                    return None
                duty = "wait"
                may_take = self._waiting.wait_for_work()
                self._trouble.tell(None, duty=duty)
            except NotRegistered as error:
                self._waiting.register_again(error)
            except (RedisAway, RedisRefused, Contended) as error:
                self._trouble.tell(error, "waiting", duty=duty)
                self._rest(self._trouble.pause(duty))
                may_take = True
        return None

    def _is_empty(self) -> bool:
        """Tell whether nothing waits in a line of our queues, or should by now."""
        inspector, queues = self._client.get_inspector(), self._listeners.queues
        return not inspector.has_any_work(queues) and not inspector.due(queues, time.time())

    def _leave_empty(self) -> None:
        log.info("nothing left to take: leaving node=%s", self._listeners.node)
        self.has_emptied = True
        self._orders.now = max(self._orders.now, Order.DRAIN)
        self._listeners.decline()

    def _sit_out(self) -> None:
        """Paused: let others have the wake-up calls that came to us, and wait for an order or the
        next duty.
        """
        self._listeners.decline()
        self._waiting.wait_for_order()

    def _rest(self, seconds: float) -> None:
        """Wait before the next try for a task; not when an order has come, perhaps while we waited
        for an answer.
        """
        if self._orders.now is Order.WORK:
            self._waiting.wait(seconds)

    def _make_room(self) -> str | None:
        """Remove the files of all attempts that Redis knows the end of; return what is still
        wanting, or None.

        Of those that the next attempt may go on from only if there is no other way.
        """
        want: str | None = None
        for but_wanted in (True, False):
            try:
                removed = self._spool.prune(time.time(), but_wanted)
            except OSError as error:
                return f"spool {self._spool.root}: {error.strerror}"
            if removed:
                what = (
                    "" if but_wanted else ", checkpoints of tasks that are to run again among them"
                )
                log.warning(
                    "prune spool=%s attempts=%d: there was no room%s",
                    self._spool.root,
                    removed,
                    what,
                )
            want = self._spool.want_of_room()
            if want is None:
                break
        return want

    # Running it

    def _run(self, task: Task) -> None:
        self._turn_to(task)
        # No `finally` that ends the process: if we break here, the task shall not.
        try:
            attempt, spare = self._launcher.prepare(task)
        except OrderCame:  # nothing of it has run
            self._hand_back(task)
            self._give_back(task)
            return
        self._task_pid = spare.pid
        began = time.monotonic()
        started = self._start(task, spare, attempt)
        watch = self._watch(started or task, attempt, spare.pid, is_child=True)
        if started is None:
            # an import may go on for ever, and it holds nothing
            process.signal_group(spare.pid, signal.SIGKILL)
            self._attending.bury(watch)
        else:
            self._attending.attend(watch)
            self._look_if_stillborn(task, spare, attempt)
        self._are_tasks_short = time.monotonic() - began < SHORT
        self._task_pid = None
        self._bury()  # those that came after it had to wait for it
        self._give_back(task)

    def _look_if_stillborn(self, task: Task, spare: Spare, attempt: Attempt) -> None:
        """See that we do not fork for nothing again and again, should task processes die before
        they begin.
        """
        if attempt.has_begun():
            self._stillborn = 0
            return
        self._stillborn += 1
        self._spares.cool_down(spare.pid, f"task={task.id}")
        until = time.monotonic() + (LOOK_FOR_ROOM if self._stillborn > 1 else 0.0)
        while self._orders.now is Order.WORK and (left := until - time.monotonic()) > 0:
            self._waiting.wait(left)  # their ends cut it short

    def _give_back(self, task: Task) -> None:
        """Let go of what was set aside for the task."""
        if self._launcher.let_go():
            self._tell_of_resources(task)

    def _tell_of_resources(self, task: Task) -> None:
        """Wake listeners of all queues of our node, if what the task had may be what their next one
        waits for.
        """
        needs = parse_needs(task.fields.get("needs", ""))
        if needs is not None and needs.resources:
            try:
                self._listeners.wake({*self._listeners.queues, *self._roster.queues()})
            except (RedisAway, RedisRefused) as error:
                log.debug("cannot wake others: %s", error)  # they look for themselves at each beat

    def _watch(
        self, task: Task, attempt: Attempt, pid: int, is_child: bool, tree: Tree | None = None
    ) -> Watch:
        limits = of(task.fields, self._defaults.of(task.queue).limits)
        return Watch(
            task, attempt, pid, limits, is_child, self._listeners.of(task.queue).instance, tree
        )

    def _hand_back(self, task: Task) -> None:
        reason = "stopped" if self._orders.now is Order.STOP else "drain"
        try:
            self._waiting.retry_until_order(
                lambda: self._listeners.of(task.queue).release(task, reason)
            )
        except (NotOwner, OrderCame) as error:
            log.warning("task=%s stays reserved: %s", task.id, error)

    def _bury(self) -> None:
        """Let go of children that have ended, except the task's process, whose end is looked at
        first.
        """
        self._spares.bury()
        if self._master is not None:
            # One that was our task once, and that another listener has adopted, is among them.
            process.reap_strays({self._task_pid or 0} | self._spares.pids, self._spool.note_ending)

    def _children(self, but: int) -> set[int] | None:
        """Return the children that have come to us from a task; None in a program whose other
        children are not ours.
        """
        if self._master is None:
            return None
        own = process.children(os.getpid()) - self._spares.pids - {but}
        # What another listener has adopted from us, and what came of that, is its.
        return {child for child in own if process.session(child) not in self._attending.left_alone}

    def _start(self, task: Task, spare: Spare, attempt: Attempt) -> Task | None:
        """Have the task begin, and return it as it is then; None: it is not ours, or we do not know
        whether it is.
        """
        try:
            started = self._launcher.start(task, spare, attempt)
        except NotOwner as error:
            log.warning("not started task=%s: %s", task.id, error)
            self._attending.close(task, attempt)
            return None
        except OrderCame as error:  # whoever finds it sees that it never began
            log.warning("not started task=%s: %s", task.id, error)
            return None
        self._have_spares()  # now that the gate is closed, which they would inherit
        return started

    def _turn_to(self, task: Task) -> None:
        """Send away spares that are ready for another handler; the next ones prepare this one once
        it comes in a row.
        """
        kind = self._kinds.get(task.queue or "", "")
        for pid in self._spares.dismiss(but=(None, kind)):
            self._spool.remove_blank(pid)
        self._spares.prepares = kind if kind == self._kind else None
        self._kind = kind

    def _on_beat(self) -> None:
        if self._master is not None:
            self._roster.sign()
        for pid in self._spares.dismiss_unneeded():
            self._spool.remove_blank(pid)

    def _have_spares(self) -> None:
        if not self._spares.pids:
            try:
                self._spares.fill(
                    self._burst if self._are_tasks_short and self._spares.are_in_demand else 1
                )
            except OSError:  # no process to be had now; the next task will wait for one
                pass

    def _become_task_process(self, gate: int, prepared: str | None) -> int:
        """Leave behind what is the listener's, and be a task process."""
        self._client.close()  # our copy of the socket; the listener's connection stays
        self._attending.forget()
        self._orders.forget()
        if self._master is not None:
            os.close(self._master.requests)
        self._launcher.let_go()  # of the task that runs meanwhile, and not ours
        if self._pool is not None:
            self._pool.withdraw()
        return self._life(self._spool, gate, prepared)
