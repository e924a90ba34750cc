"""The fork server of a slot: a small interpreter that forks the slot's task processes.

A process that is forked copies memory pages of its parent and repeats what modules such as
`logging`, `threading` and `random` do at each fork. A slot has Redis, a log and more in memory.
This program has only what a task process needs, so a fork costs a third.

The slot sends the handshakes of the processes that it wants, and the fork server answers with their
pids. It forks a middle process, which forks the task processes and ends: so they become children
of the slot, which watches and reaps them. node/forks.py has the side of the slot.

No code of the user's runs here but modules of `--preload`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import marshal
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from blueque.model import units
from blueque.model.units import HandlerName
from blueque.spool.task_spool import TaskSpool
from blueque.system import process, signals, unix_sockets
from blueque.system.dropped_prints import dropping_prints
from blueque.task_process import handlers, main, process_end, stack_dump
from blueque.task_process.handlers import Handler, Work, place_of
from blueque.task_process.import_ahead import import_for_handler
from blueque.task_process.job import Job
from blueque.task_process.package_copy import PackageCopy
from blueque.task_process.rehearsal import practise, rehearse
from blueque.task_process.remembered import Imports, Remembered
from blueque.version import __version__

ORDERS = "BLUEQUE_FORK_SERVER"
NAME = "blueque-forks"  # of this process, for `ps -o comm`
# Has the loader look up all functions of libraries at the start, and not in each task process.
_BIND = "LD_BIND_NOW"
_MOST = 200_000  # bytes of a message
_MOST_PROCESSES = 64  # in one request
# Seconds without a task after which a process practises; of several forked in a row, the second
# after twice as long, and so on, so that none does while short tasks come one after the other.
_CALM = 0.04
_OF_THREADS = 3.0  # seconds within which the threads of preloaded modules may end
_PACE = 0.02  # seconds between two looks at them


def _stamp_of_file() -> list[int] | None:
    """Return inode and modification time of this file; None if it is gone."""
    try:
        status = os.stat(__file__)
    except OSError:
        return None
    return [status.st_ino, status.st_mtime_ns]


# Of the package as it was when this process imported it, and of Python: a slot and its fork server
# must agree.
VERSION = [__version__, _stamp_of_file(), sys.version]


def is_replaced() -> bool:
    """Tell whether the package is another one now than this process has imported."""
    return _stamp_of_file() != VERSION[1]


class Orders(NamedTuple):
    """What a fork server needs to know.

    job: what the task processes run; its fields.
    spool: its directory. slot: the pid of the slot. end: the descriptor of our end of the socket.
    package: that of a copy of the package, see package_copy.py.
    preload: modules to import here. paths: the import path.
    library: names of the modules that the listener has, with spaces; a task process may be given
        them.
    arguments: those of the listener, for `sys.argv` of a handler.
    """

    job: list[Any]
    spool: str
    slot: int
    end: int
    package: int
    preload: list[str]
    paths: list[str]
    library: str
    arguments: list[str]

    def get_job(self) -> Job:
        handlers, *others = self.job
        named = {queue: HandlerName(*name) for queue, name in handlers.items()}
        return Job(named, *others)


class Forked(NamedTuple):
    """The answer to a request: the pids, in the order of the handshakes, and the number of the
    error that kept it from more, or 0.
    """

    pids: list[int]
    error: int = 0


def start(orders: Orders) -> int:
    """Start a fork server from a slot, and return its pid. Raises OSError."""
    kept = process.keep_in_memory(json.dumps(orders))
    try:
        with signals.blocked(main.HELD_BACK):  # it ends when its slot does
            return process.fork(functools.partial(_become, orders, kept))
    finally:
        os.close(kept)


def _become(orders: Orders, kept: int) -> NoReturn:
    """In a forked child: exec a fresh interpreter that reads its orders from that descriptor."""
    process.set_name(NAME)
    for passed_on in (orders.end, orders.package):
        os.set_inheritable(passed_on, True)
    shown = sorted({name.run or "--exec" for name in orders.get_job().handlers.values()})
    arguments = [sys.executable, "-P", "-m", "blueque.task_process.fork_server", *shown]
    os.execve(sys.executable, arguments, {_BIND: NAME, **os.environ, ORDERS: str(kept)})


def ask(end: int, prepared: str | None, handshakes: Sequence[int]) -> None:
    """Ask for a task process for each handshake. Raises OSError."""
    unix_sockets.send(end, json.dumps(prepared).encode(), handshakes, may_wait=False)


class _Server:
    def __init__(self, orders: Orders) -> None:
        self._orders, self._job = orders, orders.get_job()
        self._library = frozenset(orders.library.split())
        self._own_paths = list(sys.path)  # on which nothing of the user's comes first
        self._spool = TaskSpool(orders.spool, self._job.max_bytes, orders.slot)
        self._end = orders.end
        for passed_on in (self._end, orders.package):
            os.set_inheritable(passed_on, False)
        # Each task process that is the first to import a handler tells what it has imported.
        self._hear, self._tell = unix_sockets.pair(unix_sockets.DATAGRAMS)
        os.set_blocking(self._tell, False)
        self._remembered = Remembered()
        self._work: dict[str, Work | None] = {}  # by queue; None: it runs a program
        self._modules = set[str]()  # that all task processes have
        self._has_learned: set[str] = set()  # names of handlers
        self._has_handlers = False  # else all run programs
        self._told = False  # in a task process: what the import has brought
        self._shows_stacks = False  # the same: for its next task, as it was forked
        self._reaped = -1  # the same: the end of a pipe, see `_await_slot`
        self._files: list[Any] = []  # that preloaded modules have opened

    def serve(self) -> int:
        """Fork what the slot asks for, until it closes its end."""
        self._send(["version", *VERSION])
        sys.meta_path[:0] = [PackageCopy(self._orders.package), self._remembered]
        units.connect_as_listener(self._job.redis_url)
        with dropping_prints():
            refusal = preload(self._orders.preload)
        left = _await_threads() if self._orders.preload else []
        if self._orders.preload:
            self._files = process_end.files()
            process_end.flush()  # else each task process would write it as well
        process_end.disown()
        signals.discard((*main.SIGNALS, signal.SIGHUP))
        main.settle(self._job.max_bytes)
        self._modules = set(sys.modules)
        self._work = {queue: self._get_work(name) for queue, name in self._job.handlers.items()}
        self._has_handlers = any(self._work.values())
        if self._has_handlers:
            stack_dump.register()
            self._shows_stacks = True
        _freeze()  # for the rehearsal to be like the life of a task process
        rehearse(self._spool)
        process.die_with_parent(True)  # which a task process does not
        _freeze()
        process.set_name(NAME)
        self._send(["ready", refusal, left])
        poll = select.poll()
        for end in (self._end, self._hear):
            poll.register(end, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._hear in ready:
                self._learn()
            if self._end in ready:
                said, handshakes = unix_sockets.receive(self._end, _MOST, _MOST_PROCESSES)
                if not said:
                    return 0
                self._send(["forked", *self._fork(json.loads(said), handshakes)])

    def _get_work(self, name: HandlerName) -> Work | None:
        if name.run is None:
            return None
        get = functools.partial(self._resolve, name.run, name.paths)
        return self._job.with_hooks(handlers.handler(get, self._job.max_bytes, self._show_stacks))

    def _show_stacks(self) -> None:
        if not self._shows_stacks:  # an earlier task may have changed that
            stack_dump.register()
        self._shows_stacks = False

    def _send(self, message: list[Any]) -> None:
        os.write(self._end, json.dumps(message).encode())

    def _learn(self) -> None:
        with contextlib.suppress(ValueError, TypeError):  # the import may have replaced anything
            name, library, sources = json.loads(os.read(self._hear, _MOST))
            if name not in self._has_learned:
                self._has_learned.add(name)
                known = [module for module in library if module in self._library]
                self._remembered.learn(Imports(known, sources), self._own_paths)

    def _fork(self, prepared: str | None, handshakes: Sequence[int]) -> Forked:
        """Fork a middle process that forks the task processes; return what it has said."""
        # The second one is closed when the middle process is reaped.
        (read, write), (reaped, reap) = os.pipe(), os.pipe()
        ends = [read, write, reaped, reap]
        try:
            middle = process.fork(functools.partial(self._fork_each, prepared, handshakes, ends))
        except OSError as error:
            return Forked([], error.errno or 0)
        else:
            os.close(ends.pop(1))
            said = os.read(read, _MOST)  # nothing, if it was killed
            process.reap(middle)
            return Forked(*marshal.loads(said)) if said else Forked([], 0)
        finally:
            process.close_runs(sorted((*ends, *handshakes)))

    def _fork_each(
        self, prepared: str | None, handshakes: Sequence[int], ends: Sequence[int]
    ) -> int:
        """In the middle process: fork a task process for each handshake, and tell their pids.

        ends: of two pipes: on which we tell them, and on which they hear that we were reaped.
        """
        read, write, reaped, reap = ends
        process.set_name(main.NAME)
        signals.unblock(main.HELD_BACK)
        process.close_runs(sorted((self._end, self._hear, read, reap)))
        middle = os.getpid()
        # Here, one after the other: processes that all make one at once disturb each other.
        blanks = [self._spool.make_blank(f"{middle}.{n}") for n in range(len(handshakes))]
        pids: list[int] = []
        error = 0
        try:
            # After each fork this process copies what it writes to: no more than this in between.
            for _ in handshakes:
                pid = os.fork()
                if pid == 0:
                    break
                pids.append(pid)
            else:
                pid = -1
        except OSError as refusal:
            pid, error = -1, refusal.errno or 0
        if pid == 0:
            own = len(pids)
            others = [write, *handshakes]
            others.remove(handshakes[own])
            for blank in blanks:
                if blank is not None and blank is not blanks[own]:
                    others += blank.files
            others.sort()
            process.close_runs(others)
            practice = functools.partial(practise, self._spool)
            calm = (own + 1) * _CALM
            origin = main.Origin(blanks[own], self._await_slot, practice, calm, files=self._files)
            return self._live(handshakes[own], prepared, origin, reaped)
        for number, blank in enumerate(blanks):
            if blank is not None:
                blank.give_to(pids[number] if number < len(pids) else None)
        with contextlib.suppress(BrokenPipeError):  # our slot has died, and the fork server with it
            os.write(write, marshal.dumps((pids, error)))  # not json: see handshake.py
        return 0

    def _live(self, handshake: int, prepared: str | None, origin: main.Origin, reaped: int) -> int:
        """Be a task process."""
        if not self._has_handlers:
            os.close(self._tell)
        self._reaped = reaped
        if self._work.get(prepared or "") is None:  # it prepares nothing
            os.close(reaped)
        return main.live(self._work_of, self._spool, handshake, prepared, origin=origin)

    def _await_slot(self) -> bool:
        """Wait until what has forked us was reaped; tell whether the slot is our parent now."""
        os.read(self._reaped, 1)
        os.close(self._reaped)
        return os.getppid() == self._spool.slot

    def _work_of(self, queue: str) -> Work:
        """Return how to run tasks of a queue. Raises InvalidInput if it has no handler."""
        return self._work.get(queue) or self._job.work_of(queue)

    def _resolve(self, name: str, paths: Sequence[str]) -> Handler:
        """Return the callable; tell the fork server what its import has brought.

        paths: where Python looks for modules first. What is found there may have the name of a
            module that others find elsewhere, so the fork server is told nothing.
        """
        handlers.search_first(paths)
        if self._told:
            return handlers.resolve(name)
        self._told = True
        try:
            handler = handlers.resolve(name, self._remembered.load)
            if name not in self._has_learned:
                import_for_handler()
                if not paths:
                    self._say(name)
        finally:
            try:
                os.close(self._tell)
            except OSError:  # the import has closed it
                pass
        return handler

    def _say(self, name: str) -> None:
        # The import may have replaced anything, and the fork server may be gone.
        with contextlib.suppress(Exception):
            imports = Imports.since(self._modules, self._library)
            message = json.dumps([name, *imports]).encode()
            if len(message) <= _MOST:
                os.write(self._tell, message)


def _freeze() -> None:
    """Keep collections in task processes from what they share with us: they would copy all of it."""
    gc.collect()
    gc.freeze()


def preload(names: Sequence[str]) -> str | None:
    """Import the modules; return why one cannot be imported, or None."""
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as error:  # a module may call sys.exit when it is imported
            return f"cannot preload {name}: {type(error).__name__}: {error}{place_of(error)}"
    return None


def _await_threads() -> list[str]:
    """Wait for the threads that the preloaded modules have started; return the names of those that
    stay. A process that is forked has none of them, but the locks that they hold.
    """
    threading = sys.modules.get("threading")  # else no thread has been started by it
    if threading is None:
        return []
    until = time.monotonic() + _OF_THREADS
    while threading.active_count() > 1 and time.monotonic() < until:
        time.sleep(_PACE)
    main_thread = threading.main_thread()
    return sorted(thread.name for thread in threading.enumerate() if thread is not main_thread)


def main_program() -> int:
    """Serve the slot that the environment describes."""
    process.fill_standard_streams()
    orders = Orders(*json.loads(process.read_from_memory(int(os.environ.pop(ORDERS)))))
    if os.environ[_BIND] == NAME:  # else it is the user's, and for the programs of tasks as well
        del os.environ[_BIND]
    os.setsid()
    # Our slot may have held back more when it forked us.
    signal.pthread_sigmask(signal.SIG_SETMASK, main.HELD_BACK)
    process.die_with_parent(True)
    if os.getppid() != orders.slot:
        return 0
    server = _Server(orders)
    sys.path[:], sys.argv[1:] = orders.paths, orders.arguments
    try:
        return server.serve()
    except (ConnectionError, KeyboardInterrupt):  # the slot is gone
        return 0


if __name__ == "__main__":
    process.leave_with(main_program)
