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

from blueque import process, signals, slot, spawned, task_process
from blueque.address import hide_password
from blueque.client import Client
from blueque.config import Config
from blueque.defaults import Defaults
from blueque.errors import BluequeError, RedisRefused, SpoolRefused
from blueque.limits import Limits
from blueque.logs import log_to_stderr
from blueque.resources import Pool
from blueque.retry import Retry
from blueque.roster import Roster
from blueque.selection import selector
from blueque.settings import Keep, Timing
from blueque.slot import Slot
from blueque.spool import Spool
from blueque.version import __version__
from blueque.work import resolve

log = logging.getLogger("blueque")

CHOICES = "BLUEQUE_LISTENER_CHOICES"
EXIT_NOT_ALLOWED = 77
EXIT_CONFIGURATION = 78
EXIT_DRAINED = 64                                      # of a listener to its master only: it is not to be replaced
_HOPELESS = (EXIT_NOT_ALLOWED, EXIT_CONFIGURATION)
_PRUNE_EVERY = 600.0
_WORKED = 60.0                                         # seconds; whoever lived so long was not hopeless from the start
_LOOK_AT_HELD = 1.0
_SETTLED = 2.0                                         # seconds that a listener which only adopts may take to find something
_MOST_ADOPTERS = 1000
_IMPORTED = b"\0imported"


class Choices(NamedTuple):
    """What `blueque-listener` was asked to do. Either `handler` or `command` is given.

    limits, timing: as `Limits` and `Timing`. retry: the text of a policy. on_term: leave, drain or stop.
    resources: how much of each our node has. is_warm: import ahead of the task. is_spawned: in a fresh interpreter.
    preload: modules that a listener itself imports, so that its forks have them.
    """

    queues: list[str]
    select: str                                        # one of selection.NAMES
    weights: dict[str, float]                          # of queues in a lottery
    slots: int
    redis_url: str
    url_source: str
    spool: str
    max_bytes: int
    keep: float                                        # seconds for which the files of a reported attempt are kept
    spool_limit: float                                 # bytes for all of them, or below 1 a share of the disk
    log_limit: int                                     # bytes of each file that a task prints to
    handler: str | None
    command: list[str] | None
    limits: list[float | None]
    timing: list[float]
    retry: str | None
    on_term: str
    resources: dict[str, int]
    is_warm: bool
    is_spawned: bool
    preload: list[str]
    of_queues: dict[str, tuple[list[float | None], str | None]]     # limits, retry
    retention: dict[str, dict[str, tuple[float | None, int | None]]]     # by queue and by status, as `Keep`
    statistics_keep: int                               # for how many days the numbers of a day are kept
    config: str | None                                 # the blueque.toml that was read

    def defaults(self) -> Defaults:
        limits = Limits(*self.limits)  # type: ignore[arg-type]  # JSON has kept its kinds of number
        own = Defaults(Timing(*self.timing), limits, Retry.parse(self.retry), log_limit=self.log_limit)
        queues = {
            name: own._replace(limits=Limits(*its), retry=Retry.parse(retry))  # type: ignore[arg-type]
            for name, (its, retry) in self.of_queues.items()
        }
        for name, rules in self.retention.items():
            kept = {status: Keep(*its) for status, its in rules.items()}
            queues[name] = queues.get(name, own)._replace(retention=kept)
        return own._replace(queues=queues)


class Master:
    """Forks `slots` processes that run `body(master)` and stays until all have left, or as `on_term` says.

    chore: done now and then in a child of its own.
    left_behind: returns the listeners that a former master has left behind their tasks; each takes one of our slots.
    note_ending: called for a process that is no listener of ours, when it has ended; see `process.reap_strays`.
    """

    def __init__(
        self,
        body: Callable[[slot.Master], int],
        slots: int,
        on_term: str = "drain",
        chore: Callable[[], None] = lambda: None,
        left_behind: Callable[[], set[int]] = set,
        note_ending: Callable[[int, int, process.Reaped], object] = lambda *_: None,
    ) -> None:
        self._body, self._slots, self._on_term = body, slots, on_term
        self._chore, self._left_behind, self._note_ending = chore, left_behind, note_ending
        self._born: dict[int, float] = {}              # pid of a slot -> when it was forked
        self._adopters: dict[int, float] = {}          # the same of those that only adopt
        self._fork_at: list[float] = []                # when to fork the slots that are missing
        self._held: set[int] = set()                   # listeners of a former master whose slots are not free yet
        self._first = 0                                # the first signal that we were given
        self._echoes = signals.Echoes()
        self._order: int | None = None                 # the last signal we have passed on
        self._status = 0
        self._has_worked = False                       # a listener has lived long enough to have registered

    def run(self) -> int:
        """Return the exit status when all slots have left, or are left behind."""
        process.become_subreaper()
        self._signals = signals.Signals([signal.SIGTERM, signal.SIGINT, signal.SIGCHLD])
        self._lifeline, self._lifeline_end = os.pipe()
        self._requests, self._requests_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._held = set(sorted(self._left_behind())[: self._slots])
        if self._held:
            log.warning("%d listeners of a former master are behind their tasks; each counts as a slot", len(self._held))
        self._fork_at = [0.0] * (self._slots - len(self._held))
        next_chore = time.monotonic()
        while self._born or self._adopters or self._fork_at or self._held or self._order is None:
            now = time.monotonic()
            if self._order is None:
                self._free_slots()
                for at in [at for at in self._fork_at if at <= now]:
                    self._fork_at.remove(at)
                    self._fork_slot()
                if not self._born and not self._adopters and not self._fork_at and not self._held:
                    return self._status                # drained from afar, all of them
            if now >= next_chore:
                self._fork_chore()
                next_chore = now + _PRUNE_EVERY
            wake_at = min([next_chore, *self._fork_at]) if self._order is None else next_chore
            if self._held:
                wake_at = min(wake_at, now + _LOOK_AT_HELD)
            process.wait_readable([self._signals.fileno(), self._requests], wake_at - time.monotonic())
            for number in self._signals.take():
                self._obey(number)
            if self._order is not None and self._is_leaving:
                return self._status
            self._bury()
            self._hear_requests()
        return self._status

    @property
    def _is_leaving(self) -> bool:
        return self._on_term == "leave" and self._first == signal.SIGTERM

    def _free_slots(self) -> None:
        """Take over the slots of listeners that a former master had left behind, and that have left now."""
        if self._held:
            still = self._held & self._left_behind()
            self._fork_at += [0.0] * len(self._held - still)
            self._held = still

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
        for descriptor in (self._lifeline, self._lifeline_end, self._requests, self._requests_end):
            os.close(descriptor)
        self._chore()
        return 0

    def _fork_slot(self, adopts_only: bool = False) -> None:
        try:
            with signals.blocked([signal.SIGTERM, signal.SIGUSR2, signal.SIGQUIT, signal.SIGINT]):
                pid = process.fork(functools.partial(self._become_slot, os.getpid(), adopts_only))
        except OSError as error:
            log.error("cannot fork a listener: %s", error.strerror)
            if not adopts_only:
                self._fork_at.append(time.monotonic() + 1.0)
        else:
            (self._adopters if adopts_only else self._born)[pid] = time.monotonic()

    def _become_slot(self, master: int, adopts_only: bool) -> int:
        os.setpgid(0, 0)                               # the terminal's Ctrl-C is for the master, who passes it on
        self._signals.forget()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.unblock([signal.SIGINT])
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else `stty tostop` would stop us at the first log line
        os.close(self._lifeline_end)
        os.close(self._requests)
        return self._body(slot.Master(master, self._lifeline, self._requests_end, adopts_only))

    def _hear_requests(self) -> None:
        try:
            asked = os.read(self._requests, 4096).split()
        except BlockingIOError:
            return
        if self._order is not None or not asked:
            return
        # Several may have seen the same attempts, and those forked a moment ago are about to adopt them.
        now = time.monotonic()
        looking = sum(now - at < _SETTLED for at in self._adopters.values())
        for _ in range(min(int(asked[-1]), _MOST_ADOPTERS) - looking):
            self._fork_slot(adopts_only=True)

    def _obey(self, number: int) -> None:
        if number == signal.SIGCHLD or self._echoes.is_one(number):
            return
        name = signals.signal_name(number)
        if self._order is None:
            self._first = number
            if number == signal.SIGTERM and self._on_term == "stop":
                log.warning("%s: stopping the running tasks", name)
                self._pass_on(signal.SIGQUIT)
                return
            then = "leaving the running tasks to their listeners" if self._is_leaving else (
                "leaving when the running tasks have ended (again, after a second: stop them)"
            )
            log.warning("%s: taking nothing new; %s", name, then)
            self._pass_on(signal.SIGUSR2 if self._is_leaving else signal.SIGTERM)
        elif self._order == signal.SIGTERM and not self._status:
            log.warning("%s: stopping the running tasks", name)
            self._status = 128 + number
            self._pass_on(signal.SIGQUIT)

    def _bury(self) -> None:
        """Let go of children that have ended, and see to replacements."""
        ended: list[tuple[float, int, int]] = []
        for pid in process.ended_children():
            ticks, reaped = process.start_ticks(pid) or 0, process.wait_usage(pid)
            if pid in self._born:
                ended.append((self._born.pop(pid), pid, reaped.code))
            elif self._adopters.pop(pid, None) is None:
                self._note_ending(pid, ticks, reaped)  # perhaps a dead listener's task: whoever adopts it wants to know
        if self._order is not None:
            return
        for born, pid, code in ended:
            if code in _HOPELESS and not self._has_worked:
                self._status = code
                self._first = 0
                self._pass_on(signal.SIGTERM)
                return
            if code == EXIT_DRAINED:
                log.warning("listener pid=%d has been drained", pid)
                continue
            now = time.monotonic()
            log.warning("listener pid=%d ended (%s); starting another", pid, process.describe(code))
            # One that dies at birth would keep us forking for nothing.
            self._has_worked = self._has_worked or now - born > _WORKED
            self._fork_at.append(now if now - born > 1.0 else now + 1.0)

    def _pass_on(self, number: int) -> None:
        self._order = number
        self._fork_at, self._held = [], set()
        for pid in (*self._born, *self._adopters):
            os.kill(pid, number)                       # a child that has ended is still ours until `_bury`


def run_slot(choices: Choices, master: slot.Master) -> int:
    """Be one listener; return the exit status."""
    said = Config(statistics_keep=choices.statistics_keep)
    client = Client(choices.redis_url, patience=0, max_bytes=choices.max_bytes, config=said)
    spool = Spool(choices.spool, choices.max_bytes)
    if not _preload(choices.preload):
        return EXIT_CONFIGURATION
    listener = Slot(
        client, choices.queues, _life(choices), spool, choices.defaults(), select=selector(choices.select, choices.weights),
        is_warm=choices.is_warm, burst=1 if choices.is_spawned else slot.BURST, pool=_pool(choices), master=master,
    )
    try:
        return EXIT_DRAINED if listener.run() else 0
    except RedisRefused as error:
        log.error("%s", error)
        return EXIT_NOT_ALLOWED
    except SpoolRefused as error:
        log.error("%s", error)
        return EXIT_CONFIGURATION


def check_work(choices: Choices) -> str | None:
    """Return why the work cannot be done, in a sentence, or None. The handler is imported in a child that then ends."""
    if choices.command is not None:
        if process.find_program(choices.command[0]) is None:
            return f"cannot run {choices.command[0]!r}: no such program, or it is not executable"
        return None
    read, write = os.pipe()

    def try_import() -> int:
        try:
            resolve(choices.handler or "")
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
            if (pool := _pool(choices)) is not None:
                pool.open()
                pool.declare()                         # the slots say it from then on, each as long as it takes tasks
                pool.withdraw()
        except SpoolRefused as error:
            refusal = str(error)
    if refusal is not None:
        log.error("%s", refusal)
        return EXIT_CONFIGURATION
    log.info(
        "blueque-listener %s: %s, %s, %d slot%s, %s (%s), spool %s, %shost %s, pid %d",
        __version__, _shown(choices), choices.handler or shlex.join(choices.command or []),
        choices.slots, "" if choices.slots == 1 else "s",
        hide_password(choices.redis_url), choices.url_source, choices.spool,
        f"configuration {choices.config}, " if choices.config else "", process.host_name(), os.getpid(),
    )
    _warm_up(choices)
    return Master(
        functools.partial(run_slot, choices), choices.slots, choices.on_term,
        chore=functools.partial(_prune, choices),
        left_behind=functools.partial(Roster(choices.spool).left_behind, choices.queues),
        note_ending=Spool(choices.spool, choices.max_bytes).note_ending,
    ).run()


def _shown(choices: Choices) -> str:
    """Return which queues there are, and how a listener chooses among them."""
    if len(choices.queues) == 1:
        return f"queue {choices.queues[0]!r}"
    weights = choices.weights if choices.select == "lottery" else {}
    names = [f"{queue!r}={weights[queue]:g}" if queue in weights else repr(queue) for queue in choices.queues]
    return f"{len(names)} queues ({choices.select}) {', '.join(names)}"


def _life(choices: Choices) -> Callable[[Spool, int, bool], int]:
    """Return what a task process does from its fork on."""
    asked = (choices.handler, choices.command, choices.max_bytes)
    if choices.is_spawned:
        return functools.partial(spawned.become, *asked)
    return functools.partial(task_process.main, spawned.work_of(*asked))


def _pool(choices: Choices) -> Pool | None:
    if not choices.resources:
        return None
    return Pool(f"{os.path.abspath(choices.spool)}/resources", choices.resources)


def _preload(modules: list[str]) -> bool:
    """Import them here, for all task processes to have; False: that is not to be done."""
    try:
        for name in modules:
            importlib.import_module(name)
    except BaseException as error:                     # a module may call sys.exit when it is imported
        log.error("cannot preload %s: %s: %s%s", name, type(error).__name__, error, _place(error))
        return False
    if modules:
        gc.collect()
        gc.freeze()
    return True


def _warm_up(choices: Choices) -> None:
    """Do once what every task process would do again, without running a line of the user's."""
    if choices.handler is not None:
        importlib.machinery.PathFinder.find_spec(choices.handler.partition(".")[0].partition(":")[0])
    gc.collect()
    gc.freeze()                                        # else a collection in a task process copies all that we share with it


def _prune(choices: Choices) -> None:
    spool = Spool(choices.spool, choices.max_bytes)
    os.nice(10)                                        # there may be many files to look at
    try:
        removed = spool.prune(time.time() - choices.keep)
        shrunk = spool.shrink(choices.spool_limit)
    except OSError as error:
        log.warning("cannot prune spool %s: %s", choices.spool, error.strerror)
    else:
        if removed or shrunk.removed:
            log.info("prune spool=%s attempts=%d bytes=%d", choices.spool, removed + shrunk.removed, shrunk.size)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:                          # before there is anybody to take nothing new
        sys.exit(130)
