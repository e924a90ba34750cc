"""The options of a new task: what it needs, its limits, and what people read about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli.options import together
from blueque.cli.values import DURATION, POLICY, SIZE, Value
from blueque.errors import InvalidInput
from blueque.model.lines import read_lock, read_resources

if TYPE_CHECKING:
    from blueque.cli.options import Decorated

# As the parameters priority, resources and lock; see `needs`.
needs_options = together(
    click.option(
        "--priority", type=int, default=0, metavar="N", help="-100 to 100; higher is first."
    ),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME=AMOUNT",
        help="A resource that it needs: gpu=1, memory=8GiB.",
    ),
    click.option(
        "--lock", metavar="NAME[=N]", help="Of the tasks with this lock, one runs at a time, or N."
    ),
)


def needs(resources: Sequence[str], lock: str | None) -> dict[str, Any]:
    """Return the arguments `resources` and `lock` of `Queue.enqueue`."""
    try:
        amounts = read_resources(resources)
    except InvalidInput as error:
        raise click.UsageError(f"--resource {error}") from error
    try:
        return {"resources": amounts or None, "lock": None if lock is None else read_lock(lock)}
    except InvalidInput as error:
        raise click.UsageError(f"--lock {error}") from error


_retry_option = click.option(
    "--retry",
    type=POLICY,
    metavar="N|JSON",
    help="Run a failed task again: N times, or by a policy.",
)
_time_limit_option = click.option(
    "--time-limit", type=DURATION, help="End a task that runs longer."
)
_memory_limit_option = click.option(
    "--memory-limit", type=SIZE, help="End a task whose processes use more memory: 8GiB."
)

# The limits that people choose for a task, as the parameters retry, time_limit and memory_limit. The
# others are those of its handler or its queue.
task_limit_options = together(_retry_option, _time_limit_option, _memory_limit_option)


def limit_options(grace: str) -> Callable[[Decorated], Decorated]:
    """Add the retry policy and the limits that a listener gives to tasks without their own.

    As the parameters retry, time_limit, stall_limit, memory_limit, grace, lead; None: not given.
    All but the first fit `limits.fields`. grace: the default of --grace, for the help.
    """
    return together(
        _retry_option,
        _time_limit_option,
        click.option(
            "--stall-limit", type=DURATION, help="End a task that reports no progress for so long."
        ),
        _memory_limit_option,
        click.option(
            "--grace", type=DURATION, help=f"Time between SIGTERM and SIGKILL; default {grace}."
        ),
        click.option(
            "--lead",
            type=DURATION,
            help="How long before a limit the task gets SIGUSR1. This signal ends a program that does not handle it.",
        ),
    )


def tag_option(help: str) -> Callable[[Decorated], Decorated]:
    """Add --tag, as the parameter `tags`."""
    return click.option(
        "--tag", "tags", multiple=True, metavar="TAG", callback=_checked_tags, help=help
    )


def _checked_tags(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    if value:
        from blueque.model.labels import require_tags  # here: --help does without

        try:
            require_tags(value)
        except InvalidInput as error:
            raise click.UsageError(f"--tag: {str(error).removeprefix('tags: ')}") from error
    return value


def _read_title(text: str) -> str:
    from blueque.model.labels import require_title  # here: --help does without

    try:
        require_title(text)
    except InvalidInput as error:
        raise InvalidInput(str(error).removeprefix("title: ")) from error
    return text


# As the parameters title and tags of `Queue.enqueue`.
label_options = together(
    click.option(
        "--title",
        type=Value("title", _read_title),
        metavar="TEXT",
        help="What people read beside its id.",
    ),
    tag_option("A tag to find it by, as customer:17; several times for several."),
)
