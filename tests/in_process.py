"""The program `blueque` in the process of the test: the same arguments, exit codes and output,
without a new process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from unittest import mock

import click
from click.testing import CliRunner

from blueque.cli.main import main
from blueque.system import process


def run(arguments: Sequence[str], environ: Mapping[str, str], stdin: str = "") -> SimpleNamespace:
    """Run it without a terminal, as `forked.run` does, and return the same."""
    with (
        mock.patch("sys.argv", ["blueque", *arguments]),
        mock.patch.dict("os.environ", environ, clear=True),
    ):
        _forget_environment()
        result = CliRunner().invoke(click.Command("blueque", callback=main), [], input=stdin)
    _forget_environment()
    return SimpleNamespace(returncode=result.exit_code, stdout=result.stdout, stderr=result.stderr)


def _forget_environment() -> None:
    """Forget what a process remembers of its environment: the zone, and BLUEQUE_HOST."""
    time.tzset()
    process._producer.cache_clear()
