"""The program that `blueque history --exec` runs for each event, and the file with the place of the
last one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from blueque.cli import printing
from blueque.cli.failure import CONFIGURATION, Failure
from blueque.system.backoff import pause
from blueque.system.plain_files import replace, write_whole


def call(program: Sequence[str], text: str) -> None:
    """Run the program with the text of an event on its standard input until it ends with 0.

    Its output goes to standard error. Ends this program if there is no such program.
    """
    failures = 0
    while True:
        try:
            done = subprocess.run([*program], input=text.encode(), stdout=sys.stderr, check=False)
        except OSError as error:
            raise Failure(CONFIGURATION, f"cannot run {program[0]}: {error.strerror}") from error
        if done.returncode == 0:
            return
        failures += 1
        seconds = pause(failures)
        said = f"{program[0]} exited with {done.returncode}; retry in {seconds:.0f} s, events wait"
        printing.talk(said)
        time.sleep(seconds)


class PlaceFile:
    """A file with the place of the last event of each queue that was handled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, queues: Iterable[str]) -> dict[str, str]:
        """Return the places of the queues in the file. Ends the program if the file is not ours."""
        try:
            with open(self._path, encoding="utf-8") as file:
                found = json.load(file)
            return {queue: str(found[queue]) for queue in queues if queue in found}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            raise Failure(
                CONFIGURATION, f"{self._path} is not a file of --place: {error}"
            ) from error

    def write(self, places: Mapping[str, str]) -> None:
        """Replace its content. Ends the program if that is not possible."""
        known: dict[str, str] = {}  # of other queues, too
        try:
            with contextlib.suppress(FileNotFoundError), open(self._path, encoding="utf-8") as file:
                known = json.load(file)
            new = f"{self._path}.{os.getpid()}.new"
            write_whole(new, json.dumps({**known, **places}).encode())
            replace(new, self._path)
        except (OSError, ValueError) as error:
            raise Failure(CONFIGURATION, f"cannot write {self._path}: {error}") from error
