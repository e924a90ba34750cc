"""The two sides of a comparison: a copy of this checkout, and one of another commit, each with
programs of its own.

Nothing here or in the cases imports a module of what is measured, so its modules may have any
names: the programs are those that its pyproject.toml declares, and the drivers and the handler use
    what `from blueque import ...` promises.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from bench import systems
from bench.systems import System
from bench.venvs import ROOT, clean_environment

WANTED = ["blueque", "pyproject.toml"]
THIS, BASE = "this", "base"  # keys of the sides, and of their rows
LISTENER = "blueque-listener"

_PROGRAM = """\
import sys
from {module} import {function}
sys.exit({function}())
"""


class NoSide(Exception):
    """A side cannot be made; the message says why, in a line."""


def both(commit: str, directory: Path) -> list[System]:
    """Make the sides in a directory, this checkout first. Raises NoSide."""
    base = of_commit(commit, directory / BASE)
    return [of_this_checkout(directory / THIS), base]


def of_commit(commit: str, directory: Path) -> System:
    """Extract a commit into a directory. Raises NoSide when there is no such commit, or no blueque
    2 in it.
    """
    archive = _git("archive", "--format=tar", f"{commit}^{{commit}}", *WANTED)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    return _side(BASE, name_of(commit), directory)


def of_this_checkout(directory: Path) -> System:
    """Copy the files of this checkout into a directory, changes that are not committed and new
    files included.
    """
    for name in os.fsdecode(
        _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", *WANTED)
    ).split("\0"):
        # one that is deleted is listed until that is committed
        if name and (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name)
    return _side(THIS, "here", directory)


def name_of(commit: str) -> str:
    """Return the short hash of a commit. Raises NoSide."""
    return os.fsdecode(_git("rev-parse", "--short", "--verify", f"{commit}^{{commit}}")).strip()


def _side(key: str, name: str, directory: Path) -> System:
    compiled = [sys.executable, "-m", "compileall", "-q", str(directory)]
    subprocess.run(compiled, env=clean_environment(), stdout=subprocess.DEVNULL, check=True)
    program = [sys.executable, "-P", str(write_listener(directory))]
    ours = systems.OURS
    return ours._replace(
        key=key,
        name=name,
        checkout=directory,
        workers=lambda place, slots: [systems.listener(place, slots, program=program)],
    )


def write_listener(directory: Path) -> Path:
    """Write the program that pip would install."""
    try:
        entry = tomllib.loads((directory / "pyproject.toml").read_text())["project"]["scripts"][
            LISTENER
        ]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise NoSide(
            f"{directory.name}: no program {LISTENER} in pyproject.toml: {error!r}"
        ) from error
    module, _, function = entry.partition(":")
    program = directory / LISTENER
    program.write_text(_PROGRAM.format(module=module, function=function))
    return program


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True)
    if done.returncode != 0:
        raise NoSide(os.fsdecode(done.stderr).strip().splitlines()[-1])
    return done.stdout
