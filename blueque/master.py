"""The master: forks one listener for each slot, replaces one that dies, and passes on orders.

It is kept small on purpose, for what it holds in memory every fork copies: `blueque-listener` reads its arguments, then
becomes this module by exec, with its choices in one environment variable.
"""

from __future__ import annotations

import functools
import gc
import importlib.machinery
import json
import logging
import os
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from blueque import process, signals, task_process
from blueque.address import hide_password
from blueque.client import Client
from blueque.errors import BluequeError, NodeTaken, RedisRefused, SpoolRefused
from blueque.logs import log_to_stderr
from blueque.slot import Slot
from blueque.spool import Spool
from blueque.version import __version__

log = logging.getLogger("blueque")

CHOICES = "BLUEQUE_LISTENER_CHOICES"
EXIT_NOT_ALLOWED = 77
EXIT_CONFIGURATION = 78
_HOPELESS = (EXIT_NOT_ALLOWED, EXIT_CONFIGURATION)
_PRUNE_EVERY = 3600.0
_WORKED = 60.0                                         # seconds; whoever lived so long was not hopeless from the start
_IMPORTED = b"\0imported"


class Choices(NamedTuple):
    """What `blueque-listener` was asked to do. Either `handler` or `command` is given."""

    queue: str
    slots: int
    redis_url: str
    url_source: str
    spool: str
    grace: float
    max_bytes: int
    keep: float                                        # seconds for which the files of a reported attempt are kept
    handler: str | None
    command: list[str] | None


class Master:
    """Forks `slots` processes that run `body(lifeline)` and stays until all have left."""

    def __init__(self, body: Callable[[int], int], slots: int, chore: Callable[[], None] = lambda: None) -> None:
        self._body, self._slots, self._chore = body, slots, chore
        self._born: dict[int, float] = {}              # pid of a slot -> when it was forked
        self._fork_at: list[float] = []                # when to fork the slots that are missing
        self._order: int | None = None                 # the last signal we have passed on
        self._status = 0
        self._has_worked = False                       # a listener has lived long enough to have registered

    def run(self) -> int:
        """Return the exit status when all slots have left."""
        process.become_subreaper()
        self._signals = signals.Signals([signal.SIGTERM, signal.SIGINT, signal.SIGCHLD])
        self._lifeline, self._lifeline_end = os.pipe()
        self._fork_at = [0.0] * self._slots
        next_chore = time.monotonic()
        while self._born or self._order is None:
            now = time.monotonic()
            if self._order is None:
                for at in [at for at in self._fork_at if at <= now]:
                    self._fork_at.remove(at)
                    self._fork_slot()
            if now >= next_chore:
                self._fork_chore()
                next_chore = now + _PRUNE_EVERY
            wake_at = min([next_chore, *self._fork_at]) if self._order is None else next_chore
            process.wait_readable([self._signals.fileno()], wake_at - time.monotonic())
            for number in self._signals.take():
                self._obey(number)
            self._bury()
        return self._status

    def _fork_chore(self) -> None:
        """Do the chore in a child: it may take long, and we must hear orders."""
        try:
            process.fork(self._do_chore)
        except OSError as error:
            log.warning("cannot fork: %s", error.strerror)

    def _do_chore(self) -> int:
        self._signals.forget()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for descriptor in (self._lifeline, self._lifeline_end):
            os.close(descriptor)
        self._chore()
        return 0

    def _fork_slot(self) -> None:
        try:
            with signals.blocked([signal.SIGTERM, signal.SIGQUIT, signal.SIGINT]):
                pid = process.fork(self._become_slot)
        except OSError as error:
            log.error("cannot fork a listener: %s", error.strerror)
            self._fork_at.append(time.monotonic() + 1.0)
        else:
            self._born[pid] = time.monotonic()

    def _become_slot(self) -> int:
        os.setpgid(0, 0)                               # the terminal's Ctrl-C is for the master, who passes it on
        self._signals.forget()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.unblock([signal.SIGINT])
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else `stty tostop` would stop us at the first log line
        os.close(self._lifeline_end)
        return self._body(self._lifeline)

    def _obey(self, number: int) -> None:
        if number == signal.SIGCHLD:
            return
        if self._order is None:
            log.warning("%s: taking nothing new; leaving when the running tasks have ended (again: stop them)",
                        signals.signal_name(number))
            self._pass_on(signal.SIGTERM)
        elif self._order == signal.SIGTERM and not self._status:
            log.warning("%s: stopping the running tasks", signals.signal_name(number))
            self._status = 128 + number
            self._pass_on(signal.SIGQUIT)

    def _bury(self) -> None:
        """Let go of children that have ended, a dead listener's task among them, and see to replacements."""
        ended = [(self._born.pop(pid, None), pid, code) for pid, code in process.reap_all()]
        if self._order is not None:
            return
        for born, pid, code in ended:
            if born is None:
                continue
            if code in _HOPELESS and not self._has_worked:
                self._status = code
                self._pass_on(signal.SIGTERM)
                return
            now = time.monotonic()
            log.warning("listener pid=%d ended (%s); starting another", pid, process.describe(code))
            # One that dies at birth would keep us forking for nothing.
            self._has_worked = self._has_worked or now - born > _WORKED
            self._fork_at.append(now if now - born > 1.0 else now + 1.0)

    def _pass_on(self, number: int) -> None:
        self._order = number
        for pid in self._born:
            os.kill(pid, number)                       # a child that has ended is still ours until `_bury`


def run_slot(choices: Choices, lifeline: int) -> int:
    """Be one listener; return the exit status."""
    client = Client(choices.redis_url, patience=0, max_bytes=choices.max_bytes)
    spool = Spool(choices.spool, choices.max_bytes)
    slot = Slot(client, choices.queue, _work(choices), spool, grace=choices.grace, lifeline=lifeline)
    try:
        slot.run()
    except RedisRefused as error:
        log.error("%s", error)
        return EXIT_NOT_ALLOWED
    except (NodeTaken, SpoolRefused) as error:
        log.error("%s", error)
        return EXIT_CONFIGURATION
    return 0


def check_work(choices: Choices) -> str | None:
    """Return why the work cannot be done, in a sentence, or None. The handler is imported in a child that then ends."""
    if choices.command is not None:
        if process.find_program(choices.command[0]) is None:
            return f"cannot run {choices.command[0]!r}: no such program, or it is not executable"
        return None
    read, write = os.pipe()

    def try_import() -> int:
        try:
            task_process.resolve(choices.handler or "")
        except BaseException as error:                 # a module may call sys.exit when it is imported
            is_ours = isinstance(error, BluequeError)
            reason = str(error) if is_ours else f"{type(error).__name__}: {error}{_place(error)}"
            os.write(write, reason.encode("utf-8", "backslashreplace")[:4000])
            return 1
        os.write(write, _IMPORTED)
        return 0

    pid = process.fork(try_import)
    os.close(write)
    # Not to the end of the pipe: what the module starts when it is imported may hold it open for ever.
    said = os.read(read, 4096)
    os.close(read)
    process.signal_group(pid, signal.SIGKILL)
    code = process.wait_for(pid)
    if said == _IMPORTED:
        return None
    reason = said.decode("utf-8", "replace")
    return f"cannot import the handler {choices.handler}: {reason or process.describe(code)}"


def _place(error: BaseException) -> str:
    """Return where in the user's code an import broke."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename and "blueque" not in frame.filename]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def main() -> int:
    """Be the master that the environment asks for."""
    choices = Choices(*json.loads(os.environ.pop(CHOICES)))
    log_to_stderr()
    sys.path.insert(0, os.getcwd())                    # the handler is found where we were started, wherever tasks go
    refusal = check_work(choices)
    if refusal is None:
        try:
            Spool(choices.spool, choices.max_bytes).open()
        except SpoolRefused as error:
            refusal = str(error)
    if refusal is not None:
        log.error("%s", refusal)
        return EXIT_CONFIGURATION
    log.info(
        "blueque-listener %s: queue %r, %s, %d slot%s, %s (%s), spool %s, host %s, pid %d",
        __version__, choices.queue, choices.handler or shlex.join(choices.command or []),
        choices.slots, "" if choices.slots == 1 else "s",
        hide_password(choices.redis_url), choices.url_source, choices.spool, process.host_name(), os.getpid(),
    )
    _warm_up(choices)
    chore = functools.partial(_prune, choices)
    return Master(functools.partial(run_slot, choices), choices.slots, chore).run()


def _work(choices: Choices) -> task_process.Work:
    if choices.command is not None:
        return task_process.program(choices.command, choices.max_bytes)
    return task_process.handler(functools.partial(task_process.resolve, choices.handler or ""), choices.max_bytes)


def _warm_up(choices: Choices) -> None:
    """Do once what every task process would do again, without running a line of the user's."""
    if choices.handler is not None:
        importlib.machinery.PathFinder.find_spec(choices.handler.partition(".")[0].partition(":")[0])
    gc.collect()
    gc.freeze()                                        # else a collection in a task process copies all that we share with it


def _prune(choices: Choices) -> None:
    try:
        removed = Spool(choices.spool, choices.max_bytes).prune(time.time() - choices.keep)
    except OSError as error:
        log.warning("cannot prune spool %s: %s", choices.spool, error.strerror)
    else:
        if removed:
            log.info("prune spool=%s attempts=%d", choices.spool, removed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:                          # before there is anybody to take nothing new
        sys.exit(130)
