"""`blueque priority`: change the priority of waiting tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from blueque.cli.actions import act_on_waiting, split_last
from blueque.cli.options import Invocation, json_option, shared_options
from blueque.model.lines import HIGHEST, LOWEST


@click.command(context_settings={"ignore_unknown_options": True})  # N may be negative
@click.argument("words", nargs=-1, metavar="ID...|- N")
@json_option
@shared_options
def priority(invocation: Invocation, words: Sequence[str], as_json: bool) -> int:
    """Change the priority of waiting tasks. A higher priority goes first; the default is 0.

    \b
    blueque priority 7c1f 10
    blueque ls -q video.encode --state pending --ids | blueque priority - -5

    N is -100 to 100. Each task becomes the last of its new priority. Listeners of 1.0.0 take only tasks of priority 0. ID
    may be the beginning of an id; - reads ids from standard input. The exit code is 5 if a task does not wait.
    """
    ids, text = split_last(words, "ID and N: the task and its new priority")
    if not re.fullmatch(r"[-+]?[0-9]{1,3}", text) or not LOWEST <= int(text) <= HIGHEST:
        raise click.UsageError(
            f"{text!r} is not a priority: give a whole number from {LOWEST} to {HIGHEST}"
        )
    number = int(text)
    return act_on_waiting(
        "priority",
        invocation,
        ids,
        lambda queue, task: queue.set_priority(task.id, number),
        f"priority {number}",
        as_json,
        priority=number,
    )
