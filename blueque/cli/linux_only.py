"""The programs that run tasks. They need Linux, so they say that elsewhere, and are not imported."""

from __future__ import annotations

import importlib
import sys

import click

from blueque.cli.exits import run
from blueque.cli.failure import CONFIGURATION, Failure

_IS_LINUX = sys.platform == "linux"
_NAMES = {"darwin": "macOS", "win32": "Windows"}


def listener() -> None:
    """Run the blueque-listener program."""
    _run("listener")


def scheduler() -> None:
    """Run the blueque-scheduler program."""
    _run("scheduler")


def require_linux() -> None:
    """End the program, unless this is Linux."""
    if not _IS_LINUX:
        raise Failure(
            CONFIGURATION,
            f"listeners and schedulers need Linux, and this is {_NAMES.get(sys.platform, sys.platform)}",
            "Run them in a container, or in WSL on Windows. Everything else of Blueque runs here.",
        )


def _run(name: str) -> None:
    if _IS_LINUX:
        importlib.import_module(f"blueque.cli.{name}").main()
    run(_elsewhere, f"blueque-{name}")


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _elsewhere() -> None:
    require_linux()
