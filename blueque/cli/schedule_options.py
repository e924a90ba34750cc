"""The options of the verbs that make, change and preview recurring tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from blueque.cli.options import DURATION, TIME_TO_COME

if TYPE_CHECKING:
    from blueque.cli.options import Decorated

RULE = ("cron", "every", "timezone", "start", "until")
POLICIES = ("overlap", "catch_up", "window", "jitter", "pause_after_failures")
LIMITS = ("time_limit", "stall_limit", "memory_limit", "grace", "lead")
REMOVABLE = (
    *RULE[2:],
    *POLICIES,
    "keep",
    "priority",
    "resources",
    "lock",
    "retry",
    *LIMITS,
    "title",
)


def rule_options(command: Decorated) -> Decorated:
    """Add the options of a rule, as the parameters of `read_rule`."""
    return _add(
        command,
        click.option("--cron", metavar="FIELDS", help="When: '30 2 * * 1-5'."),
        click.option(
            "--every", type=DURATION, metavar="DURATION", help="When: each 6h, 10s to 366d."
        ),
        click.option("--timezone", metavar="ZONE", help="Of --cron: Europe/Berlin; default UTC."),
        click.option("--start", type=TIME_TO_COME, metavar="TIME", help="None before this time."),
        click.option("--until", type=TIME_TO_COME, metavar="TIME", help="None after this time."),
    )


def policy_options(command: Decorated) -> Decorated:
    """Add the options that say what else a recurring task does."""
    return _add(
        command,
        click.option(
            "--overlap",
            type=click.Choice(("skip", "queue", "replace", "allow")),
            help="If the task before has not ended: skip this one, queue it, replace that one, or allow both; default skip.",
        ),
        click.option(
            "--catch-up",
            type=click.Choice(("last", "all", "none")),
            help="What comes of planned times that were missed; default last.",
        ),
        click.option(
            "--window",
            type=DURATION,
            metavar="DURATION",
            help="How far back anything is caught up; default 1d.",
        ),
        click.option(
            "--jitter",
            type=DURATION,
            metavar="DURATION",
            help="Let each come later, by less than this.",
        ),
        click.option(
            "--pause-after-failures",
            type=click.IntRange(1),
            metavar="N",
            help="Pause after N failed tasks in a row.",
        ),
        click.option(
            "--keep",
            metavar="DURATION",
            help="How long a deleted task counts as made, for backfill; default 1d.",
        ),
    )


def task_options(command: Decorated) -> Decorated:
    """Add the parameters and the queue of the tasks."""
    return _add(
        command,
        click.argument("source", required=False, metavar="[JSON | @FILE | -]"),
        click.option("--text", "is_text", is_flag=True, help="The input is a string, not JSON."),
    )


def _add(command: Decorated, *options: Callable[[Decorated], Decorated]) -> Decorated:
    for option in reversed(options):  # decorators apply from the last to the first
        command = option(command)
    return command
