"""A person who answers the questions of `blueque`, and a listener of the queue video."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from dependent import NODE
from running import BLUEQUE
from transactions import protocol

from blueque.connection.redis import Redis


@pytest.fixture
def listener(redis: Redis) -> None:
    """A registered listener of the queue video."""
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())


@pytest.fixture
def why(run: Callable[..., SimpleNamespace]) -> Callable[[str], tuple[list[str], str]]:
    """Return the codes of the reasons, and all the text."""

    def why(task: str) -> tuple[list[str], str]:
        in_json, in_text = run("why", task, "--json"), run("why", task)
        assert (in_json.returncode, in_text.returncode, in_text.stderr) == (0, 0, "")
        return [reason["code"] for reason in json.loads(in_json.stdout)["reasons"]], in_text.stdout

    return why


@pytest.fixture
def answer(environ: dict[str, str]) -> Callable[..., tuple[int, str]]:
    """Run the program on a terminal, a wide one unless told otherwise, type an answer once it asks,
    and return (exit code, what was seen).
    """

    def answer(
        typed: bytes, *arguments: str, columns: int = 200, **streams: Any
    ) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        all_streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs} | streams
        program = subprocess.Popen(
            [*BLUEQUE, *arguments], env=environ | {"COLUMNS": str(columns)}, **all_streams
        )
        os.close(theirs)
        seen = b""
        try:
            while piece := _read(ours):
                seen += piece
                if typed and seen.endswith((b"[y/N] ", b" to go on] ")):
                    os.write(ours, typed)
                    typed = b""
            return program.wait(30), seen.decode().replace("\r\n", "\n")
        finally:
            os.close(ours)
            program.kill()
            program.wait()

    return answer


def _read(terminal: int) -> bytes:
    assert select.select([terminal], [], [], 30)[0], "it waits for something that is not asked here"
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
