"""The options of a new task: what it needs, its limits, and what people read about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli.options import together
from blueque.cli.setting_options import option_of
from blueque.cli.values import Value
from blueque.errors import InvalidInput
from blueque.model.lines import read_lock, read_resources
from blueque.settings.of_tasks import OF_TASKS

if TYPE_CHECKING:
    from blueque.cli.options import Decorated

# As the parameters priority, resources and lock; see `needs`.
needs_options = together(
    click.option(
        "--priority", type=int, default=0, metavar="N", help="-100 to 100; higher runs first."
    ),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME=AMOUNT",
        help="Resource that the task needs: gpu=1, memory=8GiB.",
    ),
    click.option("--lock", metavar="NAME[=N]", help="Run one task with this lock at a time, or N."),
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


# The limits that people choose for a task, as the parameters retry, time_limit and memory_limit. The
# others are those of its handler or its queue.
task_limit_options = together(
    *(
        option_of(setting, has_default=False)
        for setting in OF_TASKS
        if setting.key in ("retry", "time_limit", "memory_limit")
    )
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
        from blueque.model.labels import require_tags  # here: --help does not need it

        try:
            require_tags(value)
        except InvalidInput as error:
            raise click.UsageError(f"--tag: {str(error).removeprefix('tags: ')}") from error
    return value


def _read_title(text: str) -> str:
    from blueque.model.labels import require_title  # here: --help does not need it

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
        help="Title, shown beside the id.",
    ),
    tag_option("Tag to find the task by, such as customer:17; can be repeated."),
)
