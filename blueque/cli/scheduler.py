"""blueque-scheduler: put scheduled tasks in line when they are due."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from blueque.cli.exits import run
from blueque.cli.options import (
    WITH_SHORT_HELP,
    Invocation,
    config_option,
    debug_option,
    log_format_option,
    pass_invocation,
    redis_url_option,
    version_option,
)
from blueque.cli.program import Program, given
from blueque.model.units import LOG_FORMATS
from blueque.node.reload import ANSWER_TO, Check


@click.command(cls=Program, context_settings=WITH_SHORT_HELP)
@log_format_option
@redis_url_option
@config_option
@debug_option
@version_option
@pass_invocation
def command(invocation: Invocation, /, **_: Any) -> int:
    """Put the scheduled tasks of every queue in line when they are due.

    Any number may run at once: no task is put in line twice. SIGTERM or Ctrl-C stops it at once. SIGHUP: start anew with
    what blueque.toml says now. SIGUSR1: write the stacks of its threads to the log. Options can also be set elsewhere:
    --log-format is BLUEQUE_LOG_FORMAT in the environment, and log_format in [scheduler] of blueque.toml.
    """
    from blueque.scheduler import Scheduler
    from blueque.system.log_format import log_to_stderr  # here: --help does without
    from blueque.system.systemd import Notifier

    client, address = invocation.client(), invocation.address()
    values = {**invocation.config.scheduler, **given(click.get_current_context())}
    if ANSWER_TO in os.environ:  # a running scheduler asks whether another could start
        return 0
    log_to_stderr(values.get("log_format", LOG_FORMATS[0]))
    check = Check([sys.executable, *sys.orig_argv[1:]])
    return Scheduler(client, address, check, Notifier()).run()


def main() -> None:
    """Run the blueque-scheduler program."""
    run(command, "blueque-scheduler")


if __name__ == "__main__":
    main()
