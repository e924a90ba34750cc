"""The keeper of a slot: a small interpreter that forks the processes of its tasks, and is their parent.

A forked process copies memory pages of its parent and repeats what modules such as `logging`,
`threading` and `random` do at each fork. A slot has Redis, a log and more in memory. This program
has only what a task process needs, so a fork costs a third.

The slot sends one end of a handshake for each process that it wants, and the keeper answers with
its pid and a descriptor. It reaps its task processes and what they leave behind. If an attempt has
begun and left no exit record, the keeper records how it ended, see `TaskSpool.reap`. When its slot
is gone, it ends the processes that have not begun and waits for the others. So the next watcher of
an attempt finds its end in its files. node/keeper.py has the side of the slot.

The only user code that runs here is that of `--preload`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enumerations that `signal` makes
import contextlib
import errno
import functools
import gc
import importlib
import json
import marshal
import mmap
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, NoReturn

from blueque.model import units
from blueque.model.units import HandlerName
from blueque.spool.task_spool import TaskSpool
from blueque.system import process, signals, unix_sockets
from blueque.system.dropped_prints import dropping_prints
from blueque.task_process import handlers, main, package_copy, process_end, stack_dump
from blueque.task_process.handlers import Handler, Work, place_of
from blueque.task_process.import_ahead import import_for_handler, import_for_payloads
from blueque.task_process.job import Job
from blueque.task_process.main import RECORDED, WAITS
from blueque.task_process.rehearsal import rehearse
from blueque.task_process.remembered import Imports, Remembered

ORDERS = "BLUEQUE_KEEPER"
NAME = "blueque-keeper"  # of this process, for `ps -o comm`
# Has the loader look up all functions of libraries at the start, and not in each task process.
_BIND = "LD_BIND_NOW"
_MOST = 200_000  # bytes of a message
_MOST_OF_REQUEST = 4096  # bytes
FORMAT = 0  # of the messages, by marshal: `json` would copy pages of memory for each fork
_PLACES = 4096  # bytes of shared memory, one for each task process
_OF_THREADS = 3.0  # seconds within which the threads of preloaded modules may end
_PACE = 0.02  # seconds between two looks at them


class Orders(NamedTuple):
    """What a keeper needs to know.

    job: what the task processes run; its fields.
    spool: its directory. slot: the pid of the slot. end: the descriptor of our end of the socket.
    package: that of a copy of the package, see package_copy.py.
    preload: modules to import here. paths: the import path.
    library: the modules that the listener has imported, separated by spaces; task processes may get them.
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


def become(orders: Orders) -> NoReturn:
    """Exec a fresh interpreter that serves the slot, from the copy of the package.

    Called in a forked child of a slot.
    """
    kept = process.keep_in_memory(json.dumps(orders))
    process.set_name(NAME)
    for passed_on in (orders.end, orders.package):
        os.set_inheritable(passed_on, True)
    shown = sorted({name.run or "--exec" for name in orders.get_job().handlers.values()})
    program = package_copy.program(orders.package, __name__)
    arguments = [sys.executable, "-P", "-c", program, NAME, *shown]
    try:
        os.execve(sys.executable, arguments, {_BIND: NAME, **os.environ, ORDERS: str(kept)})
    except OSError as error:  # the listener tells, and tries again
        os._exit(error.errno or 1)


class Keeper:
    """Serves one slot.

    work_of: returns how to run tasks of a queue. spool: with the pid of the slot.
    end: our end of the socket to the slot. files: that modules of `--preload` have opened.
    """

    def __init__(
        self,
        work_of: Callable[[str], Work],
        spool: TaskSpool,
        end: int,
        files: Sequence[Any] = (),
        after_fork_in_child: Callable[[], object] = lambda: None,
    ) -> None:
        self._work_of, self._spool, self._end = work_of, spool, end
        self._files, self._after_fork_in_child = files, after_fork_in_child
        self.poll = select.poll()
        self._pid = os.getpid()
        # What each task process does, as it says itself; see `main.WAITS`.
        self._board = mmap.mmap(-1, _PLACES)
        self._places: dict[int, int] = {}  # of our task processes on the board, by pid

    def serve(self, heard: Callable[[Collection[int]], object] = lambda _: None) -> int:
        """Fork what the slot asks for until it closes its end; return when all processes have ended.

        heard: called with the descriptors of `poll` that are ready.
        """
        self._signals = signals.Signals([signal.SIGCHLD])
        signals.unblock([signal.SIGCHLD])
        for descriptor in (self._end, self._signals.fileno()):
            self.poll.register(descriptor, select.POLLIN)
        while self._places or self._end >= 0:
            ready = dict(self.poll.poll())
            heard(ready)
            if self._signals.fileno() in ready:
                self._signals.take()
                self._reap()
            if self._end in ready:
                message, handshakes = self._receive()
                if message and handshakes:
                    self._fork(marshal.loads(message), handshakes[0])
                elif message:  # no more files may be open here
                    self.send("forked", 0, errno.EMFILE)
                else:
                    self._lose_slot()
        return 0

    def _receive(self) -> tuple[bytes, list[int]]:
        """Return the next request; empty: the slot is gone."""
        try:
            return unix_sockets.receive(self._end, _MOST_OF_REQUEST, 1)
        except ConnectionResetError:  # it had not heard all that we said
            return b"", []

    def send(self, *message: Any, files: Sequence[int] = ()) -> None:
        """Send the slot a message, unless it is gone."""
        if self._end >= 0:
            try:
                unix_sockets.send(self._end, marshal.dumps(message, FORMAT), files)
            except OSError:
                pass

    def _fork(self, prepared: str | None, handshake: int) -> None:
        place = 0
        while place in self._places.values():
            place += 1
        self._board[place] = WAITS
        try:
            pid = process.fork(functools.partial(self._live, prepared, handshake, place))
        except OSError as error:
            self.send("forked", 0, error.errno or 0)
            return
        finally:
            os.close(handshake)
        self._places[pid] = place
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:  # no more files may be open: without the handshake it ends
            self.send("forked", 0, error.errno or 0)
            return
        self.send("forked", pid, 0, files=[pidfd])
        os.close(pidfd)

    def _live(self, prepared: str | None, handshake: int, place: int) -> int:
        """Run as a task process."""
        process.set_name(main.NAME)
        self._signals.after_fork_in_child()
        # `signal.signal` looks enumerations up, and so copies pages of memory.
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        signals.unblock(main.HELD_BACK)
        os.close(self._end)
        self._after_fork_in_child()
        say = functools.partial(self._board.__setitem__, place)
        return main.live(
            self._work_of, self._spool, handshake, prepared, self._pid, say, self._files
        )

    def _reap(self) -> None:
        for pid in process.ended_children():
            place = self._places.pop(pid, None)
            if place is None:  # it has come to us from a task
                process.reap(pid)
                continue
            if self._board[place] == RECORDED:
                reaped = process.wait_usage(pid)
            else:
                reaped = self._spool.reap(pid)
                self._spool.remove_blank(pid)
            # Also of one with an exit record, which the last code of the task may have removed.
            self.send("ended", pid, *reaped)

    def _lose_slot(self) -> None:
        """Continue without the slot: end the task processes that have not begun, and let go of its log."""
        self.poll.unregister(self._end)
        os.close(self._end)
        self._end = -1
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        os.close(nowhere)
        for pid, place in self._places.items():
            if self._board[place] == WAITS:
                os.kill(pid, signal.SIGSTOP)
                os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                if self._board[place] == WAITS:  # it cannot begin while we look
                    process.signal_group(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)


class _Interpreter:
    """A keeper in an interpreter of its own, with the handlers of a listener."""

    def __init__(self, orders: Orders) -> None:
        self._orders, self._job = orders, orders.get_job()
        self._library = frozenset(orders.library.split())
        self._own_paths = list(sys.path)  # on which nothing of the user's comes first
        self._spool = TaskSpool(orders.spool, self._job.max_bytes, orders.slot)
        for passed_on in (orders.end, orders.package):
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
        self._files: list[Any] = []  # that preloaded modules have opened
        self._keeper = Keeper(
            self._work_of, self._spool, orders.end, self._files, self._after_fork_in_child
        )

    def serve(self) -> int:
        """Serve the slot."""
        sys.meta_path.insert(0, self._remembered)
        units.connect_as_listener(self._job.redis_url)
        with dropping_prints():
            refusal = preload(self._orders.preload)
        left = _await_threads() if self._orders.preload else []
        if self._orders.preload:
            self._files += process_end.files()
            process_end.flush()  # else each task process would write it as well
        process_end.disown()
        signals.discard((*main.SIGNALS, signal.SIGHUP))
        main.settle(self._job.max_bytes)
        import_for_payloads()
        self._modules = set(sys.modules)
        self._work = {queue: self._get_work(name) for queue, name in self._job.handlers.items()}
        self._has_handlers = any(self._work.values())
        if self._has_handlers:
            stack_dump.register()
            self._shows_stacks = True
        process.become_subreaper()
        _freeze()  # for the rehearsal to be like the life of a task process
        rehearse(self._spool)
        process.die_with_parent(False)
        _freeze()
        process.set_name(NAME)
        # Those of preloaded modules are not left by a task.
        self._keeper.send("ready", refusal, left, sorted(process.children(os.getpid())))
        self._keeper.poll.register(self._hear, select.POLLIN)
        return self._keeper.serve(self._learn)

    def _get_work(self, name: HandlerName) -> Work | None:
        if name.run is None:
            return None
        get = functools.partial(self._resolve, name.run, name.paths)
        return self._job.with_hooks(handlers.handler(get, self._job.max_bytes, self._show_stacks))

    def _show_stacks(self) -> None:
        if not self._shows_stacks:  # an earlier task may have changed that
            stack_dump.register()
        self._shows_stacks = False

    def _learn(self, ready: Collection[int]) -> None:
        if self._hear not in ready:
            return
        with contextlib.suppress(ValueError, TypeError):  # the import may have replaced anything
            name, library, sources = json.loads(os.read(self._hear, _MOST))
            if name not in self._has_learned:
                self._has_learned.add(name)
                known = [module for module in library if module in self._library]
                self._remembered.learn(Imports(known, sources), self._own_paths)

    def _after_fork_in_child(self) -> None:
        os.close(self._hear)
        if not self._has_handlers:
            os.close(self._tell)

    def _work_of(self, queue: str) -> Work:
        """Return how to run tasks of a queue. Raises InvalidInput if it has no handler."""
        return self._work.get(queue) or self._job.work_of(queue)

    def _resolve(self, name: str, paths: Sequence[str]) -> Handler:
        """Return the callable, and tell the keeper what its import has loaded.

        paths: where Python looks for modules first. A module found there may have the name of
            another one elsewhere, so the keeper is told nothing.
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
        # The import may have replaced anything, and the keeper may be gone.
        with contextlib.suppress(Exception):
            imports = Imports.since(self._modules, self._library)
            message = json.dumps([name, *imports]).encode()
            if len(message) <= _MOST:
                os.write(self._tell, message)


def _freeze() -> None:
    """Exclude our objects from garbage collection in task processes, which would copy all of them."""
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
    """Wait for the threads that preloaded modules have started; return the names of those that stay.

    A forked process has none of them, but the locks that they hold.
    """
    threading = sys.modules.get("threading")  # else no thread has been started by it
    if threading is None:
        return []
    until = time.monotonic() + _OF_THREADS
    while threading.active_count() > 1 and time.monotonic() < until:
        time.sleep(_PACE)
    main_thread = threading.main_thread()
    return sorted(thread.name for thread in threading.enumerate() if thread is not main_thread)


def main_program() -> NoReturn:
    """Serve the slot that the environment describes."""
    process.leave_with(_serve)


def _serve() -> int:
    process.fill_standard_streams()
    orders = Orders(*json.loads(process.read_from_memory(int(os.environ.pop(ORDERS)))))
    if os.environ[_BIND] == NAME:  # else it is the user's, and for the programs of tasks as well
        del os.environ[_BIND]
    os.setsid()
    # Our slot may have held back more when it forked us.
    signal.pthread_sigmask(signal.SIG_SETMASK, main.HELD_BACK)
    process.die_with_parent(True)  # until it serves: the import of a module may never end
    if os.getppid() != orders.slot:
        return 0
    interpreter = _Interpreter(orders)
    sys.path[:], sys.argv[:] = orders.paths, orders.arguments
    return interpreter.serve()
