"""A Redis, a scheduler, a listener and the page, for as long as a terminal is open.

Redis ends last, so that it has the outcome of each task. Its data and the files of attempts stay in
`.blueque/`, and unfinished tasks continue the next time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from blueque.client import Client
from blueque.dev.sources import Sources
from blueque.errors import RedisAway, Taken
from blueque.model.task import Task
from blueque.system import process, signals
from blueque.system.embedded_redis import Server

DIRECTORY = ".blueque"
TOKEN = "_BLUEQUE_DEV_TOKEN"  # the variable with the token of the page
LOOK = 1.0  # seconds between two looks at the programs, and at the files of handlers
PATIENCE = 10.0  # seconds in which a program without tasks ends
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Say = Callable[[str], None]


class Wish(NamedTuple):
    """The arguments of `blueque dev`.

    modules: define handlers. has_listener: even without modules, because blueque.toml names some.
    """

    modules: Sequence[str]
    has_listener: bool
    slots: int
    has_page: bool


class Session:
    """The programs of one terminal. directory: of the modules. say: prints a line for the person."""

    def __init__(self, directory: Path, wish: Wish, say: Say) -> None:
        self._directory = directory
        self._home = directory / DIRECTORY
        self._wish = wish
        self._say = say
        self._server = Server(
            self._home, *("--appendonly", "yes"), *("--appendfsync", "everysec"), dies_with_us=True
        )
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._asked = 0  # how often the person has asked to end
        self._is_redis_dead = False

    def run(self) -> int:
        """Run until the person ends it; return an exit code. Raises Taken, NotInstalled."""
        self._home.mkdir(exist_ok=True)
        asked = signals.Signals(_ENDS)
        try:
            with self._lock(), self._redis():
                self._start_programs()
                code = self._watch(asked)
                self._stop(("page", "scheduler"))
        finally:
            asked.restore()
        if not self._is_redis_dead:
            self._say("Redis is saved. The data are in .blueque/ until you delete it.")
        return code

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock the directory. Raises Taken if another session uses it."""
        with (self._home / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                pid = file.read().strip()
                why = f"blueque dev runs already in {self._home}, as process {pid or '?'}"
                raise Taken(why, pid or None) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    @contextlib.contextmanager
    def _redis(self) -> Iterator[None]:
        """Run Redis, on the port of the last time if that is free."""
        place = self._home / "port"
        with contextlib.suppress(OSError, ValueError):
            self._server.at(_require_free(int(place.read_text())))
        self._server.start()
        place.write_text(str(self._server.port))
        self._say(f"Redis runs at {self._server.url}. In another terminal:")
        self._say(f"  export BLUEQUE_REDIS_URL={self._server.url}")
        try:
            yield
        finally:
            self._stop([*self._programs])
            self._is_redis_dead = self._server.ended() is not None
            self._server.stop()

    def _start_programs(self) -> None:
        self._start("scheduler", "blueque.cli.scheduler", "--log-level", "warning")
        if self._wish.has_listener:
            modules = [word for module in self._wish.modules for word in ("--module", module)]
            slots = ("--slots", str(self._wish.slots))
            spool = ("--spool", str(self._home / "spool"))
            stop = ("--on-term", "stop")  # should we be killed, no Redis is left to wait for
            self._start("listener", "blueque.cli.listener", *modules, *slots, *spool, *stop)
        if self._wish.has_page:
            self._start("page", "blueque.cli.main", "web", token=self._token())

    def _token(self) -> str:
        """Return the token of the page of this directory, so that an open page stays logged in."""
        file = self._home / "token"
        if not file.exists():
            file.touch(mode=0o600)
        token = file.read_text().strip() or secrets.token_urlsafe(24)
        file.write_text(token)
        return token

    def _start(self, name: str, module: str, *arguments: str, token: str = "") -> None:
        self._programs[name] = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--redis-url", self._server.url],
            stdin=subprocess.DEVNULL,
            cwd=self._directory,
            env={**os.environ, **({TOKEN: token} if token else {})},
            process_group=0,  # Ctrl-C on the terminal is for us
            preexec_fn=_leave_with_us if name == "listener" else _die_with_us,
        )

    def _watch(self, asked: signals.Signals) -> int:
        """Wait until the person asks to end and the tasks have ended, or a program ends by itself."""
        sources = Sources(self._wish.modules, self._directory)
        while True:
            process.wait_readable([asked.fileno()], LOOK)
            for number in asked.take():
                if not self._end(number):
                    return 0
            if self._redis_has_ended():
                return 1
            for name, program in self._programs.items():
                code = program.poll()
                if code is None:
                    continue
                if self._asked and name == "listener":
                    return 0
                self._say(
                    f"The {name} has ended by itself ({process.describe(code)}): see its lines above."
                )
                return 1
            if not self._asked and sources.has_changed() and "listener" in self._programs:
                self._say("A file has changed: the listener restarts.")
                self._programs["listener"].send_signal(signal.SIGHUP)

    def _redis_has_ended(self) -> bool:
        """Return whether Redis has ended by itself, and print it."""
        code = self._server.ended()
        if code is not None:
            self._say(
                f"Redis has ended by itself ({process.describe(code)}): see {DIRECTORY}/redis.log. "
                "Everything else ends too. Start it again: blueque dev"
            )
        return code is not None

    def _end(self, number: int) -> bool:
        """Take no more tasks; when asked again, end running ones. False: nothing to wait for."""
        self._asked += 1
        listener = self._programs.get("listener")
        if listener is None:
            return False
        listener.send_signal(signal.SIGINT)
        if number == signal.SIGHUP:  # the terminal is gone, so no second Ctrl-C can come
            self._asked += 1
        if self._asked > 1:
            self._say("The running tasks are stopped; their retry policies apply.")
            return True
        running = self._running()
        if running:
            self._say(f"Nothing new is taken. These run on: {', '.join(running)}.")
            self._say("Ctrl-C once more ends them.")
        return True

    def _running(self) -> list[str]:
        """Return the tasks that run, in words."""
        client = Client(self._server.url, patience=0.0)
        try:
            inspector = client.get_inspector()
            tasks = inspector.listing(inspector.queues(), ("started",), 10).tasks
        except RedisAway:
            return []
        finally:
            client.close()
        return [_words(task) for task in tasks]

    def _stop(self, names: Sequence[str]) -> None:
        """End programs, and wait for them."""
        for name in names:
            if name in self._programs and self._programs[name].poll() is None:
                self._programs[name].terminate()
        for name in names:
            program = self._programs.pop(name, None)
            if program is None:
                continue
            try:
                program.wait(None if name == "listener" else PATIENCE)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()


def _words(task: Task) -> str:
    return f"{task.title or task.key or task.id[:8]} of {task.queue}"


def _die_with_us() -> None:
    process.die_with_parent(True)


def _leave_with_us() -> None:
    process.die_with_parent(True, signal.SIGTERM)


def _require_free(port: int) -> int:
    """Return the port. Raises OSError if another program uses it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
    return port
