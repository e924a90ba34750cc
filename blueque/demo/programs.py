"""The programs of the demo: starts and ends a Redis, a scheduler and a listener, and handles
interrupts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from blueque.connection.address import Address
from blueque.connection.plain import SocketConnection
from blueque.errors import NotInstalled
from blueque.system import process, signals
from blueque.system.embedded_redis import find_server, running_server
from blueque.text.terminal import cut

STOP_TIMEOUT = 5.0
START_TIMEOUT = 20.0

IN_MEMORY = """\
******************************************************************************
*  NO REDIS SERVER HERE. This is fakeredis, an imitation in memory: it shows *
*  how Blueque works, NOT how fast it is. NOT FOR REAL WORK.                 *
*  For a real one: apt install redis-server                                  *
******************************************************************************
"""


class Interrupted(Exception):
    """A signal asks the demo to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signals.signal_name(number)}; nothing is left behind")
        self.number = number


class WentWrong(Exception):
    """The demo did not do what it promises."""


class Interrupts:
    """Ctrl-C and other signals. They take effect in `pause` only, so whatever is started is also
    ended.
    """

    def __init__(self) -> None:
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
            numbers.remove(signal.SIGHUP)  # the demo was started with nohup
        self._numbers = numbers
        self._signals = signals.Signals(numbers)

    def ignore(self) -> None:
        """Ignore all signals from now on: the exit code is settled."""
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)

    def pause(self, seconds: float | None) -> None:
        """Wait, without end if None. Raises Interrupted."""
        process.wait_readable([self._signals.fileno()], seconds)
        for number in self._signals.take():
            raise Interrupted(number)


class Program:
    """A child in its own process group: Ctrl-C on the terminal reaches only the demo, which then
    ends its children in order.

    orders: the signals that make it leave. is_shown: its output goes to ours, not into its log.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        directory: Path,
        orders: Sequence[int],
        is_shown: bool = False,
    ) -> None:
        self.name = name
        self._log, self._orders = directory / f"{name}.log", orders
        environ = {
            key: value for key, value in os.environ.items() if not key.startswith("BLUEQUE_")
        }
        environ["PYTHONSAFEPATH"] = "1"  # no imports from the directory where the demo is started
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=None if is_shown else log,
                stderr=log,
                env=environ,
                process_group=0,
            )
        self.pid = self._process.pid

    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def require_running(self) -> None:
        """Raise WentWrong, with its last output, if it has ended."""
        code = self._process.poll()
        if code is not None:
            said = self.said().strip().splitlines()[-5:]
            raise WentWrong(
                "\n    ".join(
                    [f"the {self.name} ended by itself ({process.describe(code)}):", *said]
                )
            )

    def said(self) -> str:
        """Return its log."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        for number in self._orders:
            self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Progress:
    """A line that is redrawn on a terminal; a new line every few seconds elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._next = 0.0 if self._is_terminal else 2.0

    def show(self, done: int, running: Sequence[str], seconds: float) -> None:
        line = f"{done:3d} of {self._total} done, {seconds:3.0f} s"
        if running:
            line += f", at work on {' and '.join(running)}"
        if self._is_terminal:
            bar = "#" * (20 * done // self._total)
            shown = f"  [{bar:.<20}] {line}"[: shutil.get_terminal_size().columns - 1]
            print(f"\r\033[K{shown}", end="", flush=True)
        elif seconds >= self._next or done == self._total:
            self._next = seconds + 2.0
            print(cut(f"  {line}", 79), flush=True)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self.leave()
        print(f"  {line}", flush=True)

    def leave(self) -> None:
        """Clear the line for other output."""
        if self._is_terminal:
            print("\r\033[K", end="", flush=True)


def open_server(stack: contextlib.ExitStack, directory: Path) -> tuple[int, str]:
    """Start a Redis that ends with the stack; return its port and its description."""
    try:
        server = stack.enter_context(running_server())
    except NotInstalled:
        if importlib.util.find_spec("fakeredis") is None:
            raise
        print(IN_MEMORY)
        return open_server_in_memory(stack, directory), "fakeredis, in memory"
    return server.port, str(find_server())


def open_server_in_memory(stack: contextlib.ExitStack, directory: Path) -> int:
    port_file = directory / "port"
    code = "import sys; from blueque.demo.programs import serve_in_memory; serve_in_memory(sys.argv[1])"
    server = Program("in-memory server", ["-c", code, str(port_file)], directory, [signal.SIGKILL])
    stack.callback(server.stop)
    deadline = time.monotonic() + START_TIMEOUT
    while not port_file.exists():
        server.require_running()
        if time.monotonic() > deadline:
            raise WentWrong("the in-memory server did not start")
        time.sleep(0.05)
    return int(port_file.read_text())


def serve_in_memory(port_file: str) -> None:
    """Serve fakeredis, and write the port into a file."""
    from fakeredis import TcpFakeServer  # here: an extra, and only the last choice

    server = TcpFakeServer(("127.0.0.1", 0))
    Path(f"{port_file}.new").write_text(str(server.server_address[1]))
    os.rename(f"{port_file}.new", port_file)
    server.serve_forever()


def end_descendants() -> None:
    """End the processes that our children have left. We are a subreaper: orphans become our
    children.
    """
    while children := _children():
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            process.reap(pid)


def _children() -> list[int]:
    """Return the pids of our children, with those that have ended and wait to be reaped."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                # The second field is the program's name in parentheses and may hold anything.
                stat = (entry / "stat").read_text(errors="replace")
                if int(stat[stat.rindex(")") + 2 :].split()[1]) == os.getpid():
                    found.append(int(entry.name))
    return found


def redis_cli() -> str | None:
    """Return the name of an installed redis-cli."""
    return next((name for name in ("redis-cli", "valkey-cli") if shutil.which(name)), None)


def ask(port: int | str, *words: str) -> list[str]:
    """Return the lines that `redis-cli -p port words...` prints; over our own connection if it is
    not installed.
    """
    program = redis_cli()
    if program is not None:
        command = [program, "-p", str(port), *words]
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, process_group=0
        )
        return answer.stdout.splitlines()
    connection = SocketConnection(Address(f"redis://127.0.0.1:{port}/0"))
    (reply,) = connection.exchange([words])
    connection.close()
    return [str(part) for part in (reply if isinstance(reply, list) else [reply])]
