"""The program `blueque` in the process of the test: the same arguments, exit codes and output,
without a new interpreter.
"""

from __future__ import annotations

from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from blueque.cli.main import main


@pytest.fixture
def run(environ, monkeypatch):
    """Run it without a terminal, as `run` of test_cli_actions does."""

    def run(*arguments, stdin="", **more):
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["blueque", *arguments])
            result = CliRunner().invoke(
                click.Command("blueque", callback=main), [], input=stdin, env=environ | more
            )
        return SimpleNamespace(
            returncode=result.exit_code, stdout=result.stdout, stderr=result.stderr
        )

    return run
