"""Environments of their own beside this checkout's `.venv`, for tests of what cannot be in there.

Each is made once, and made again when what it is made of has changed. No test is skipped for want
of one: if the package index cannot be reached, `EnvironmentMissing` says so.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from running import clean_environment


class EnvironmentMissing(Exception):
    """An environment cannot be made."""


def python_of(directory: Path) -> Path:
    return directory / "bin" / "python"


def install(
    directory: Path, requirements: list[str], check: str, *, sees_ours: bool = False
) -> None:
    """Make the environment unless it is there. Raises EnvironmentMissing.

    check: Python code that exits with 0 if it is right; it gets the directory as its argument.
    sees_ours: what it has not it takes from this environment.
    """
    made_of = json.dumps([requirements, sys.version, sys.base_prefix, str(directory), sees_ours])
    stamp = directory / "made-of.json"
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # one test run makes it, and others wait
        if stamp.exists() and stamp.read_text() == made_of and _is_right(directory, check):
            return
        shutil.rmtree(directory, ignore_errors=True)
        try:
            venv.create(directory, symlinks=True)
        except OSError as error:
            raise EnvironmentMissing(f"cannot make {directory.name}: {error}") from error
        # By our pip: one of its own takes longer to install than some requirements. What is imported
        # is compiled then.
        pip = [sys.executable, "-m", "pip", "--python", python_of(directory)]
        options = ["-q", "--disable-pip-version-check", "--no-compile"]
        done = subprocess.run(
            [*pip, "install", *options, *requirements],
            env=clean_environment(),
            capture_output=True,
            text=True,
        )
        if sees_ours:
            ours = sysconfig.get_path("purelib")
            its = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
            (its / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
        if done.returncode != 0 or not _is_right(directory, check):
            raise EnvironmentMissing(
                f"pip cannot get {' and '.join(requirements)} from the package index:\n{done.stderr[-2000:]}"
            )
        stamp.write_text(made_of)


def _is_right(directory: Path, check: str) -> bool:
    command = [python_of(directory), "-I", "-c", check, str(directory)]
    try:
        done = subprocess.run(command, env=clean_environment(), capture_output=True)
    except OSError:  # the Python that it was made with is gone
        return False
    return done.returncode == 0
