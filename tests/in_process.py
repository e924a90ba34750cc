"""The program `blueque` in the process of the test: the same arguments, exit codes and output,
without a new process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from blueque.cli.main import main


def run(arguments: Sequence[str], environ: Mapping[str, str], stdin: str = "") -> SimpleNamespace:
    """Run it without a terminal, as `forked.run` does, and return the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["blueque", *arguments])
        result = CliRunner().invoke(
            click.Command("blueque", callback=main), [], input=stdin, env=environ
        )
    return SimpleNamespace(returncode=result.exit_code, stdout=result.stdout, stderr=result.stderr)
