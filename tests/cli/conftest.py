"""A person who answers the questions of `blueque`."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from running import BLUEQUE


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
