"""What a task can leave under the name of a file: in the tests, and copied beside the handlers of
listeners.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

FILES = (
    "task",
    "parameters",
    "stdout",
    "stderr",
    "times",
    "progress.live",
    "progress",
    "checkpoint.json",
    "checkpoint",
    "checkpoint.known",
    "stop",
    "stop.new",
    "asked",
    "result",
    "exit",
    "exit.new",
    "status",
    "status.new",
    "reported",
    "wanted",
    "stack",
)
HUGE = 2**40  # bytes, with next to none of them on the disk
DEPTH = 1200  # of directories: more than calls may nest in Python
HALF_A_PAIR = "\\" + "ud800"  # in JSON: a character that is none, and cannot be sent to Redis


def _directory(path: Path) -> None:
    path.mkdir()
    (path / "a file").write_text("in the way")


def _deep(path: Path) -> None:
    path.mkdir()
    before = os.open(".", os.O_RDONLY)
    os.chdir(path)
    for _ in range(DEPTH):
        os.mkdir("d")
        os.chdir("d")
    os.fchdir(before)
    os.close(before)


def _huge(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(HUGE)


def _forge(path: Path) -> None:
    """Say of the attempt that it has a number with which no directory can be named."""
    try:
        written = json.loads((path.parent / "task").read_text().partition("\n")[0])
        written["fields"]["attempt"] = "9" * 300
    except (OSError, ValueError):
        written = {}
    path.write_text(json.dumps(written) + "\n5")


def _longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x" * 5000)  # and no line end


def _link(path: Path) -> None:
    (path.parent / "another").write_text("{}\n5\n")
    path.symlink_to("another")


def _socket(path: Path) -> None:
    # By a short name: that of a socket takes 108 bytes at most.
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as end:
        end.bind(path.name)


# What makes a file writes over the old one, so that its other names see it too.
KINDS: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: None,
    "pipe": os.mkfifo,
    "directory": _directory,
    "deep": _deep,
    "link": _link,
    "dangling": lambda path: path.symlink_to("nothing"),
    "loop": lambda path: path.symlink_to(path.name),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "socket": _socket,
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(b"{"),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 20),
    "numbers": lambda path: path.write_bytes(
        b"-5 -5 -5 -5\nnan 1 1 1\n1e999 " + b"9" * 400 + b" 7 7\n"
    ),
    "nested": lambda path: path.write_bytes(b"[" * 200_000),
    "fields": lambda path: path.write_text(
        '{"status": "failed", "error": {}, "code": "x", "id": 5, "path": [], "fields": {"token": 1}, "finished": NaN}'
    ),
    "record": lambda path: path.write_text(
        f'{{"status": "complete", "result": "{HALF_A_PAIR}", "finished": "soon", "memory_peak": [], "leaked": 1e999}}'
    ),
    "forged": _forge,
    "huge": _huge,
    "longer": _longer,
}
IN_PLACE = (
    "empty",
    "short",
    "garbage",
    "numbers",
    "nested",
    "fields",
    "record",
    "forged",
    "huge",
    "longer",
)


def spoil(path: Path, kind: str) -> None:
    """Put something of this kind in place of a file."""
    is_plain = path.is_file() and not path.is_symlink()
    if not (is_plain and kind in IN_PLACE):
        remove(path)
    KINDS[kind](path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
