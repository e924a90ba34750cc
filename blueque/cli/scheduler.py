"""blueque-scheduler: put scheduled tasks in line when they are due."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from blueque.cli.exits import run
from blueque.cli.failure import CONFIGURATION, Failure
from blueque.cli.options import (
    WITH_SHORT_HELP,
    Invocation,
    config_option,
    debug_option,
    pass_invocation,
    redis_url_option,
    version_option,
)
from blueque.cli.setting_options import setting_options, sources_of
from blueque.node.reload import ANSWER_TO, Check
from blueque.system import signals

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.producer.schedule_file import SchedulesOfFile


@click.command(context_settings=WITH_SHORT_HELP)
@setting_options("scheduler")
@redis_url_option
@config_option
@debug_option
@version_option
@pass_invocation
def command(invocation: Invocation, /, **_: Any) -> int:
    """Put scheduled tasks of all queues in line when they are due, and make the tasks of recurring ones.

    Any number may run at once: no task is put in line twice. SIGTERM or Ctrl-C stops it at once. SIGHUP: reload
    blueque.toml. SIGUSR1: write the stacks of its threads to the log. Options can also be set elsewhere: --log-level
    is BLUEQUE_LOG_LEVEL in the environment, and log_level in [scheduler] of blueque.toml.

    --apply-schedules runs blueque schedule apply, without --prune. Use it only if all schedulers have the same file.
    If the file is refused because a recurring task was made by hand, the scheduler logs that and runs on. Without a
    file it does not start: exit code 78.
    """
    from blueque.scheduler.program import Program
    from blueque.system.log_format import log_to_stderr  # here: --help does not need it
    from blueque.system.systemd import Notifier

    client, address = invocation.client(), invocation.address()
    settings = sources_of(click.get_current_context(), invocation.config, "scheduler").of(
        "scheduler"
    )
    schedules = None
    if settings.get("apply_schedules"):
        schedules = _definitions(invocation, client)
    if ANSWER_TO in os.environ:  # a running scheduler asks whether another could start
        return 0
    log_to_stderr(settings.get("log_format"), settings.get("log_level"))
    check = Check([sys.executable, *sys.orig_argv[1:]])
    return Program(client, address, check, Notifier(), schedules).run()


def _definitions(invocation: Invocation, client: Client) -> SchedulesOfFile:
    """Return the recurring tasks of the file; end the program if there is none. Raises ConfigRefused."""
    from blueque.producer import schedule_file  # here: --help does not need it

    path = invocation.config.path
    if path is None:
        sentence = "no blueque.toml was found, so there are no schedules to apply"
        raise Failure(CONFIGURATION, sentence, "See: blueque config")
    wanted = schedule_file.definitions(invocation.config, client.get_queue)
    return schedule_file.SchedulesOfFile(path, wanted)


def main() -> None:
    """Run the blueque-scheduler program."""
    signals.hold_back("SIGHUP", "SIGUSR1")  # they would end us
    run(command, "blueque-scheduler")


if __name__ == "__main__":
    main()
