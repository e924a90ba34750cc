"""Adoption: finds attempts on this node that no listener watches, and takes them over.

It looks in our own lists, which an earlier process with our node id may have filled. It also looks
in the lists of dead listeners of this host, and in the spool. Only the spool has attempts that
other listeners have declared lost.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from blueque.errors import NotOwner
from blueque.model.encoding import count_of
from blueque.model.limits import of
from blueque.model.states import LOST, WAITING
from blueque.model.task import Task
from blueque.node.attempt_watch import AttemptWatch, tree_of
from blueque.node.context import NodeContext
from blueque.node.registry import Registry
from blueque.spool import checkpoint
from blueque.spool.attempt import Attempt
from blueque.system import process
from blueque.system.process_tree import Tree

log = logging.getLogger("blueque")

LOOK = 30.0  # seconds between two looks at our own lists, and at all open attempts of the spool


class Candidate(NamedTuple):
    """An attempt that a listener may take over.

    task: its present state, or, if it has been given up or run again, as it was reserved for this
        attempt.
    kind: orphan: its listener is dead, or it is in our own list. unstarted: Redis has lost that we
        started it. lost: it was given up in error. superseded: it has a newer attempt or was ended.
    """

    task: Task
    attempt: Attempt
    pid: int
    kind: str


class Adoption:
    """Finds attempts for one listener, and takes them over."""

    def __init__(self, context: NodeContext, registry: Registry) -> None:
        self._client, self._listener = context.client, context.listener
        self._defaults, self._spool = context.defaults, context.spool
        self._master, self._registry = context.master, registry
        self._inspector = context.client.get_inspector()
        self._next_look = 0.0
        self._instances: list[str | None] = []  # our registrations at the last look at our lists
        self._logged: set[str] = set()  # tasks that we cannot adopt, as the log has said

    def candidates(self, orphans: list[Task], has_unwatched: bool) -> list[Candidate]:
        """Return the attempts that this listener can take over. It watches none now.

        orphans: started tasks of dead listeners of this host.
        has_unwatched: whether the last beat saw a task in our own lists. Between two beats these
            are read only after a registration, because an earlier process may have had our node id.
        """
        now, instances = time.monotonic(), [ours.instance for ours in self._listener]
        is_due = now >= self._next_look
        found: list[Candidate] = []
        if is_due or has_unwatched or instances != self._instances:
            found = self.of_our_lists()
        are_more = len(found) > 1  # then look again after the first
        for task in orphans:
            if self._listener.has(task.queue):  # otherwise another program has made it
                found += self._orphan(task, self._spool.find(task.id, task.token))
        if is_due:
            found += self._in_spool({candidate.attempt.path for candidate in found})
            self._next_look = now + LOOK
        self._instances = [] if are_more else instances
        return found

    def of_our_lists(self, watched: str | None = None) -> list[Candidate]:
        """Return the attempts in our own lists, except the one that we watch.

        Those that have not begun are released. An earlier process with our node id may have left
        them there, or Redis has lost how they ended, as after a failover.
        """
        found: list[Candidate] = []
        for task in self._listener.held():
            if task.id == watched:
                continue
            attempt = self._spool.find(task.id, task.token)
            if task.status == "started":
                found += self._orphan(task, attempt or self._removed(task))
            elif attempt is not None and attempt.has_begun():
                found.append(_unstarted(task, attempt))
            else:
                self._release(task)
        return found

    def take_over(self, candidate: Candidate) -> AttemptWatch | None:
        """Become the owner of the attempt and return its watch.

        None: another listener was first, or the task does not need the attempt. Raises what Redis
            raises, NotRegistered.
        """
        task, attempt, pid, kind = candidate
        taken: Task | None = task
        seen = None
        # before it is ours: it may end the moment that it is
        tree = tree_of(task, pid, attempt.used_before())
        if kind == "orphan":
            registration = self._inspector.registration(task.queue or "", task.node or "")
            seen = registration.get("beat_at")
            taken = self._listener.of(task.queue).adopt(task)
        elif kind == "unstarted":
            taken = self._listener.of(task.queue).reassert(task, pid)
        elif kind == "lost" and process.is_alive(pid, task.fields):
            taken = self._listener.of(task.queue).restore(task, pid, time.time())
        if taken is None:
            return None
        watch = self._watch(taken, attempt, pid, tree)
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
        elif taken.is_interrupted:
            watch.end("interrupted", "interrupted")
        return watch

    def _watch(self, task: Task, attempt: Attempt, pid: int, tree: Tree | None) -> AttemptWatch:
        limits = of(task.fields, self._defaults.of(task.queue).limits)
        processor = self._client.get_processor(task)
        used_before = attempt.used_before()
        watch = AttemptWatch(processor, attempt, pid, limits, None, tree, used_before)
        watch.instance = self._listener.of(task.queue).instance
        return watch

    def put_back(self, unwatched: Sequence[tuple[str, str]]) -> None:
        """Put pending tasks of our own lists back in their lines."""
        for queue, task in unwatched:
            self._listener.of(queue).put_back_lost(task)

    def ask_for_help(self, count: int) -> None:
        """Ask the master to fork listeners that adopt so many attempts."""
        if count > 0:
            try:
                os.write(self._master.requests, b"%d\n" % count)
            except OSError:  # it has been asked so often that the pipe is full, or it is gone
                pass

    def _orphan(self, task: Task, attempt: Attempt | None) -> list[Candidate]:
        if attempt is not None:
            pid, ticks = task.pid or 0, count_of(task.fields.get("pid_start"))
            is_its = self._spool.runs(pid, ticks, attempt)
            return [Candidate(task, attempt, pid if is_its else 0, "orphan")]
        if task.id not in self._logged:
            self._logged.add(task.id)
            log.warning(
                "the listener of task=%s on this host is gone, and its files are in another spool, at %s: start a "
                "blueque-listener with that --spool to adopt it",
                task.id,
                task.files,
            )
        return []

    def _removed(self, task: Task) -> Attempt | None:
        """Return the attempt of ours if its process and its files are gone: its end cannot be known."""
        path = (task.files or "").partition(":")[2]
        is_here = process.shares_pids(task.fields)
        is_gone = is_here and not process.is_alive(task.pid or 0, task.fields)
        has_word = not path or os.path.lexists(path)
        return self._spool.attempt_at(path) if is_gone and not has_word else None

    def _release(self, task: Task) -> None:
        try:
            self._client.get_processor(task).release("former_life")
        except NotOwner as error:  # cancelled meanwhile
            log.info("%s", error)

    def _is_alone(self, task: Task) -> bool:
        """Return whether a started task's listener is dead; elsewhere, only its lease shows it."""
        state = self._inspector.registration(task.queue or "", task.node or "").get("state")
        return task.status == "started" and state != "alive"

    def _in_spool(self, known: set[str]) -> list[Candidate]:
        """Return open attempts that Redis has given up or that were superseded; close useless ones."""
        found: list[Candidate] = []
        listeners = self._registry.alive()
        for pid, ticks, attempt in self._spool.open_attempts():
            is_running = process.start_ticks(pid) == ticks and process.is_alive(pid, {})
            if attempt.path in known or (is_running and _is_below(pid, listeners)):
                continue
            try:
                task_id, fields = attempt.read_task()
            except (OSError, ValueError):
                continue
            # If the pid belongs to another process by now, the process of the attempt is gone.
            identity = (
                {name: str(value) for name, value in process.identity(pid).items()}
                if is_running
                else {}
            )
            task = self._inspector.task(task_id)
            then = Task(task_id, {**fields, "pid_start": str(ticks), **identity})
            if not self._listener.has(then.queue):
                continue
            kind = _kind(task, then, is_running or attempt.has_ended())
            if kind == "unknown" and not (is_running or attempt.has_begun()):
                self._spool.forget(attempt)  # its listener died before it recorded the start
            elif kind in ("closed", "superseded") and not is_running:
                cwd = self._defaults.of(task.queue).cwd
                _close(task, attempt, cwd.is_kept(has_failed=True))
            elif kind in ("lost", "superseded"):
                found.append(Candidate(then, attempt, pid, kind))
            elif (
                kind == "watched" and not is_running and attempt.has_exit() and self._is_alone(task)
            ):
                found.append(Candidate(task, attempt, pid, "orphan"))
        return found


def _is_below(pid: int, listeners: Collection[int]) -> bool:
    """Return whether the process belongs to one of the listeners: its keeper is or was a child of it."""
    parent = process.parent(pid) or 0
    return parent in listeners or process.parent(parent) in listeners


def _unstarted(task: Task, attempt: Attempt) -> Candidate:
    """Return an attempt of ours that has begun, with what Redis has lost of its process."""
    pid, ticks = attempt.process
    # Not the ticks of the process that has the pid now: that one may be another's.
    identity = {name: str(value) for name, value in process.identity(pid).items()} | {
        "pid_start": str(ticks)
    }
    return Candidate(Task(task.id, {**task.fields, **identity}), attempt, pid, "unstarted")


def _kind(task: Task, then: Task, is_of_use: bool) -> str:
    """Return the relation of an open attempt to its task: watched, lost, superseded, closed, or
    unknown, if Redis has lost it.

    is_of_use: it still runs, or has recorded how it ended.
    """
    # by the same key
    is_another = task.status is not None and task.fields.get("created") != then.fields.get(
        "created"
    )
    if task.status is None or ((task.attempt or 0) < (then.attempt or 0) and not is_another):
        return "unknown"
    if is_another or task.token != then.token:
        return "superseded" if is_of_use else "closed"
    if task.status in ("reserved", "started"):
        return "watched"
    if task.status == "failed" and task.error_type in LOST and is_of_use:
        return "lost"
    return "closed"


def _close(task: Task, attempt: Attempt, keeps_cwd: bool) -> None:
    if attempt.has_cwd() and not keeps_cwd:
        for _ in attempt.remove_cwd():
            pass
    try:
        attempt.mark_reported(
            is_wanted=task.status in WAITING and checkpoint.has_files(attempt.path)
        )
    except OSError as error:  # a full disk: it is kept longer than need be
        log.warning("cannot mark %s as reported: %s", attempt.path, error.strerror)
