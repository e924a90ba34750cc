"""blueque-scheduler: puts scheduled tasks in line when they are due."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from blueque.cli.exits import run
from blueque.cli.failure import Failure
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

if TYPE_CHECKING:
    from blueque.client import Client


@click.command(cls=Program, context_settings=WITH_SHORT_HELP)
@log_format_option
@redis_url_option
@config_option
@debug_option
@version_option
@pass_invocation
def command(invocation: Invocation, /, **_: Any) -> int:
    """Put the scheduled tasks of every queue in line when they are due.

    Any number may run at once: no task is put in line twice. SIGTERM or Ctrl-C stops it at once.
    SIGHUP has it read blueque.toml again, SIGUSR1 write to its log where it is. Options can stand
    elsewhere as well: --log-format is BLUEQUE_LOG_FORMAT in the environment, and log_format in
        [scheduler] of blueque.toml.
    """
    from blueque.scheduler import Scheduler
    from blueque.system.log_format import log_to_stderr  # here: --help does without
    from blueque.system.systemd import Notifier

    def reread() -> Client | None:
        try:
            return Invocation(invocation.url, invocation.config_file).client()
        except Failure as failure:
            logging.getLogger("blueque").error(
                "everything stays as it is: %s", failure.format_message()
            )
            return None

    values = {**invocation.config.scheduler, **given(click.get_current_context())}
    log_to_stderr(values.get("log_format", LOG_FORMATS[0]))
    return Scheduler(invocation.client(), invocation.address(), reread, Notifier()).run()


def main() -> None:
    """Run the blueque-scheduler program."""
    run(command, "blueque-scheduler")


if __name__ == "__main__":
    main()
