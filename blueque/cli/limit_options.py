"""The options --retry, --time-limit and so on: the retry policy and the limits of a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from blueque.cli.options import together
from blueque.cli.values import DURATION, POLICY, SIZE

if TYPE_CHECKING:
    from blueque.cli.options import Decorated


def limit_options(grace: str | None = None) -> Callable[[Decorated], Decorated]:
    """Add the retry policy and the limits of a task, or the defaults of a listener.

    As the parameters retry, time_limit, stall_limit, memory_limit, grace, lead; None: not given.
    All but the first fit `limits.fields`. grace: the default of --grace, for the help.
    """
    return together(
        click.option(
            "--retry",
            type=POLICY,
            metavar="N|JSON",
            help="Run a failed task again: N times, or by a policy.",
        ),
        click.option("--time-limit", type=DURATION, help="End a task that runs longer."),
        click.option(
            "--stall-limit", type=DURATION, help="End a task that reports no progress for so long."
        ),
        click.option(
            "--memory-limit", type=SIZE, help="End a task whose processes use more memory: 8GiB."
        ),
        click.option(
            "--grace",
            type=DURATION,
            help="Time between SIGTERM and SIGKILL" + (f"; default {grace}." if grace else "."),
        ),
        click.option(
            "--lead",
            type=DURATION,
            help="Send SIGUSR1 so long before a limit; it ends a program without a handler for it.",
        ),
    )
