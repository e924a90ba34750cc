"""Programs of ours in a fork of the test: processes of their own, with nothing left to import."""

from __future__ import annotations

import importlib
import logging
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

from blueque.cli import listener, main, scheduler

if TYPE_CHECKING:
    from prepared import Prepared

# The last one is what each fork that is a listener imports.
for module in (*(f"cli.verbs.{verb}" for verb in main.VERBS), "node.main"):
    importlib.import_module(f"blueque.{module}")
MAINS: dict[str, Callable[[], None]] = {
    "main": main.main,
    "listener": listener.main,
    "scheduler": scheduler.main,
}


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    stdin: str = "",
    program: str = "main",
    cwd: Path | None = None,
) -> SimpleNamespace:
    """Run a program without a terminal, to its end, and return what subprocess.run would."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as printed,
        tempfile.TemporaryFile() as told,
    ):
        given.write(stdin.encode())
        given.seek(0)
        code = wait(
            start(arguments, environ, given.fileno(), printed.fileno(), told.fileno(), program, cwd)
        )
        texts = []
        for file in (printed, told):
            file.seek(0)
            texts.append(file.read().decode())
    return SimpleNamespace(returncode=code, stdout=texts[0], stderr=texts[1])


def on_terminal(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Run `blueque` on a terminal and return the lines that it shows."""
    ours, theirs = os.openpty()
    pid = start(arguments, environ, theirs, theirs, theirs)
    os.close(theirs)
    shown = b""
    while piece := _read(ours):
        shown += piece
    os.close(ours)
    wait(pid)
    return shown.decode().replace("\r\n", "\n").splitlines()


def start(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
    program: str = "main",
    cwd: Path | None = None,
    is_apart: bool = False,
    prepared: Prepared | None = None,
) -> int:
    """Start a program and return its pid. stdin, stdout, stderr: descriptors. is_apart: in a
    process group of its own. prepared: what becomes the listener that it is to become by exec.
    """
    pid = os.fork()
    if pid == 0:
        try:
            if is_apart:
                os.setpgid(0, 0)
            files = [os.dup(file) for file in (stdin, stdout, stderr)]
            for number, file in enumerate(files):
                os.dup2(file, number)
            kept = 2 if prepared is None else prepared.descriptor
            os.closerange(3, kept)
            os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
            if prepared is not None:
                os.execve = prepared.become
            _become(arguments, environ, MAINS[program], cwd)
        finally:
            os._exit(70)
    return pid


def wait(pid: int, seconds: float = 30.0) -> int:
    """Return the exit code, or minus the signal that ended it."""
    end = os.pidfd_open(pid)
    is_over = select.select([end], [], [], seconds)[0]
    os.close(end)
    if not is_over:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert is_over, f"still there after {seconds:g} s"
    return code


class Forked:
    """What subprocess.Popen is for a process that it has started, as far as `Program` asks it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        if self._code is None:
            self._code = wait(self.pid, seconds)
        return self._code


def _become(
    arguments: Sequence[str], environ: Mapping[str, str], act: Callable[[], None], cwd: Path | None
) -> NoReturn:
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    if cwd is not None:
        os.chdir(cwd)
    logging.getLogger().handlers.clear()  # pytest has some there
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = open(0, encoding=encoding)  # noqa: SIM115  # these end with the process
    sys.stdout = open(1, "w", encoding=encoding)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=encoding, buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.argv = ["blueque", *arguments]
    code: object = 0
    try:
        act()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
