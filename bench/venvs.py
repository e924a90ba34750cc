"""Environments for the peers and for the plots, in `.venv-bench`, made once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / ".venv-bench"
INSTALL_TIMEOUT = 600.0  # seconds

_VERSIONS = """\
import json, importlib.metadata as metadata
print(json.dumps({found.name.lower(): found.version for found in metadata.distributions()}))
"""


class InstallFailed(Exception):
    """Something could not be installed; the message says why, in a line."""


def python_of(name: str) -> Path:
    return DIRECTORY / name / "bin" / "python"


def install(name: str, requirements: list[str]) -> dict[str, str]:
    """Make the environment unless it is there, and return the versions of what is in it. Raises
    InstallFailed.
    """
    made_of = json.dumps([requirements, sys.version, sys.base_prefix, str(DIRECTORY)])
    stamp = DIRECTORY / name / "made-of.json"
    if not stamp.exists() or stamp.read_text() != made_of:
        print(f"installing {' '.join(requirements)} (once)", file=sys.stderr, flush=True)
        shutil.rmtree(DIRECTORY / name, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(DIRECTORY / name)])
        _run(
            [
                str(python_of(name)),
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                *requirements,
            ]
        )
        stamp.write_text(made_of)
    versions: dict[str, str] = json.loads(_run([str(python_of(name)), "-I", "-c", _VERSIONS]))
    return versions


def clean_environment() -> dict[str, str]:
    """Return our environment without what changes how Python finds modules, or whether it keeps
    them compiled.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallFailed(f"not installed: {type(error).__name__}") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise InstallFailed(
            f"not installed: {said[-1].strip() if said else f'exit {done.returncode}'}"
        )
    return done.stdout
