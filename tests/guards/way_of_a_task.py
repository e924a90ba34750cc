"""Print the way of one task through a listener, from reserve to complete.

Run `python tests/guards/way_of_a_task.py`. It starts a Redis and a blueque-listener, traces a few
tasks that do nothing, and prints the way with the fewest hops; a beat may come in between in the
others. Each line is a call from one module of `blueque/` into another, with its caller behind it.

The way begins with `reserve` and ends with the return of `end`, in the process of the
listener. A hop is a call or a return that crosses from one module to another.
Two pairs of figures are counted:

in all: all modules of `blueque/`, and all hops between them. Most of them are in the three
    transactions: names of keys, packed commands, replies.
in the listener: the modules of OWN, and the hops into them from any other module and back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = f"{ROOT}/blueque/"
TASKS = 20  # on a busy machine, the process of a task may not be ready in time, with more hops
FILE = "WAY_OF_A_TASK"  # an environment variable: where the listener writes what it has seen
OWN = ("client", "listener", "node")  # the rooms that are the listener
BEGIN, END = "protocol.reserving.reserve", "protocol.ends.end"
SITE = "import sys; sys.path.append({!r}); import way_of_a_task; way_of_a_task.trace()"


class Figures(NamedTuple):
    modules: int
    hops: int


class Way(NamedTuple):
    """The calls that cross from one module into another: depth, function, caller."""

    calls: list[tuple[int, str, str]]

    @property
    def in_all(self) -> Figures:
        ends = {_module(name) for _, *names in self.calls for name in names}
        return Figures(len(ends), 2 * len(self.calls))

    @property
    def in_listener(self) -> Figures:
        ends = {_module(name) for _, *names in self.calls for name in names}
        calls = [callee for _, callee, _ in self.calls if _is_own(callee)]
        return Figures(sum(map(_is_own, ends)), 2 * len(calls))

    @property
    def text(self) -> str:
        calls = [f"{'  ' * depth}{callee}    < {caller}" for depth, callee, caller in self.calls]
        modules = sorted({_module(name) for _, *names in self.calls for name in names})
        figures = [
            f"in all: {self.in_all.modules} modules, {self.in_all.hops} hops",
            f"in the listener: {self.in_listener.modules} modules, {self.in_listener.hops} hops",
        ]
        return "\n".join([*calls, "", *modules, "", *figures])


class _Tracer:
    """Writes the way of each task that this process takes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: dict[Any, str | None] = {}  # of code, inside of blueque/
        self._is_on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "return"):
            return
        callee = self._name(frame)
        if callee is None:
            return
        if event == "call" and callee == BEGIN:
            self._start()
        if not self._is_on or os.getpid() != self._pid:
            return
        self._note(frame, event, callee)
        if event == "return" and callee == END:
            self._is_on = False
            with Path(self._path).open("a") as file:
                file.write(json.dumps(self._calls) + "\n")

    def _start(self) -> None:
        self._is_on, self._pid = True, os.getpid()
        self._calls: list[tuple[int, str, str]] = []
        self._depth = 0

    def _note(self, frame: FrameType, event: str, callee: str) -> None:
        above = frame.f_back
        while above is not None and self._name(above) is None:
            above = above.f_back
        caller = (self._name(above) if above is not None else None) or ""
        if _module(caller) == _module(callee):
            return
        if event == "call":
            self._calls.append((self._depth, callee, caller))
        self._depth = max(0, self._depth + (1 if event == "call" else -1))

    def _name(self, frame: FrameType) -> str | None:
        code = frame.f_code
        if code not in self._names:
            path = code.co_filename
            is_ours = path.startswith(PACKAGE)
            module = path.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
            self._names[code] = f"{module}.{code.co_qualname}" if is_ours else None
        return self._names[code]


def _is_own(name: str) -> bool:
    return name.partition(".")[0] in OWN


def _module(name: str) -> str:
    """Return the module of a function, whose name may have further dots in it."""
    parts = name.split(".")
    return ".".join(parts[:2]) if (ROOT / "blueque" / parts[0]).is_dir() else parts[0]


def trace() -> None:
    """Trace this process, if it is a blueque-listener."""
    if "blueque.node.main" in sys.orig_argv:
        sys.setprofile(_Tracer(os.environ[FILE]))


def measure(url: str, directory: Path) -> Way:
    """Run tasks that do nothing in a listener, one after the other; return the shortest way."""
    from blueque import Client

    (directory / "sitecustomize.py").write_text(SITE.format(str(Path(__file__).parent)))
    (directory / "work.py").write_text("def run(task):\n    return None\n")
    seen = directory / "seen"
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(directory), str(ROOT))),
        FILE: str(seen),
    }
    command = [sys.executable, "-m", "blueque.cli.listener", "way", "--handler", "work:run"]
    options = ["--slots", "1", "--spool", str(directory / "spool"), "--redis-url", url]
    listener = subprocess.Popen([*command, *options], cwd=directory, env=environ)
    try:
        client = Client(url)
        for _ in range(TASKS):
            client.wait(client.get_queue("way").enqueue(""), timeout=30)
        client.close()
    finally:
        listener.terminate()
        listener.wait()
    ways = [Way(json.loads(line)) for line in seen.read_text().splitlines()]
    return min(ways, key=lambda way: len(way.calls))


def main() -> None:
    from blueque.system.embedded_redis import running_server

    with running_server() as server, tempfile.TemporaryDirectory() as directory:
        print(measure(server.url, Path(directory)).text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
