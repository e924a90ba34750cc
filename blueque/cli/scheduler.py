"""blueque-scheduler: puts scheduled tasks in line when they are due."""

from __future__ import annotations

import click

from blueque.cli.exits import run
from blueque.cli.options import (
    Invocation,
    config_option,
    debug_option,
    pass_invocation,
    redis_url_option,
    version_option,
)


@click.command()
@redis_url_option
@config_option
@debug_option
@version_option
@pass_invocation
def command(invocation: Invocation) -> int:
    """Put the scheduled tasks of every queue in line when they are due.

    Any number may run at once: no task is put in line twice. SIGTERM or Ctrl-C stops it at once.
    """
    from blueque.logs import log_to_stderr  # here: --help does without
    from blueque.scheduler import Scheduler

    log_to_stderr()
    return Scheduler(invocation.client(), invocation.address()).run()


def main() -> None:
    """Run the blueque-scheduler program."""
    run(command, "blueque-scheduler")


if __name__ == "__main__":
    main()
