"""`blueque show`: show one task in full; and find a task by the beginning of its id."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.failure import MISSING, USAGE, Failure
from blueque.cli.named import no_group, queue_named, require_groups
from blueque.cli.options import Invocation, json_option, reveal_option, shared_options
from blueque.documents.tasks import of_task
from blueque.model.group import condition_on, group_of, is_gate
from blueque.model.ids import begins_uuid, is_uuid
from blueque.queries.listing import MAX_FOUND, MIN_PREFIX, STATUSES
from blueque.sentences.facts import facts
from blueque.text.hints import of_queue, of_schedule

if TYPE_CHECKING:
    from blueque.queries.inspector import Inspector

_MAX_LINES = 12  # of a long value, on a terminal
_MOST = 65536  # characters of a value
_LABEL = 12


@click.command()
@click.argument("prefix", metavar="ID")
@click.option("-q", "--queue", metavar="QUEUE", help="Show the task with this key in QUEUE.")
@click.option("--group", metavar="NAME", help="With -q: of this group.")
@reveal_option
@json_option
@shared_options
def show(
    invocation: Invocation,
    prefix: str,
    queue: str | None,
    group: str | None,
    reveals: bool,
    as_json: bool,
) -> None:
    """Show everything about the task ID.

    \b
    blueque show 7c1f
    blueque show -q render.4k scene-17

    Signs say when its listener last sent a beat, and when the task last reported progress or printed something. The
    time that is left is an estimate from its progress so far.

    With --queue the word is a key, not an id. In parameters and context, values of names such as password, token or
    api_key are shown as "[hidden]". --reveal shows them.

    ID may be the beginning of an id, at least 4 characters, if only one task matches. An id that the producer has chosen
    is written whole.
    """
    inspector, hide = invocation.client().get_inspector(), invocation.hider(reveals)
    if group is not None and queue is None:
        raise click.UsageError("--group needs --queue QUEUE, and a key")
    task = inspector.task(
        find_one(inspector, prefix)
        if queue is None
        else find_key(inspector, queue_named(queue), prefix, group)
    )
    signs, others = inspector.signs(task, time.time()), inspector.dependencies(task)
    if as_json:
        printing.print_json("task", **of_task(task, signs, others, hide))
        return
    cause = inspector.cause(task)
    for label, value in facts(task, signs, invocation.is_utc, hide, others, cause):
        print_fact(label, value)


def find_one(inspector: Inspector, prefix: str) -> str:
    """Return the only id with this beginning; end the program if no task or several match."""
    found = inspector.find(prefix)
    if len(found) == 1:
        return found[0]
    if found:
        count = f"{MAX_FOUND} tasks or more" if len(found) == MAX_FOUND else f"{len(found)} tasks"
        some = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise Failure(USAGE, f"{count} begin with {prefix!r}: {some}", "Give more of the id.")
    group = group_of(prefix) or prefix
    if not is_gate(group) and inspector.has_group(group):
        show = f"blueque group show {shlex.quote(group)}"
        wait = f"To wait for it: blueque enqueue QUEUE --after {shlex.quote(condition_on(group))}"
        why = f"{group!r} is a group, not a task"
        raise Failure(MISSING, why, f"See it: {show}", wait)
    if group != prefix:
        raise no_group(inspector, group)
    if inspector.has_schedule(prefix):
        advice = f"See it: {of_schedule('show', prefix)}"
        raise Failure(MISSING, f"{prefix!r} is a recurring task, not a task", advice)
    if prefix in inspector.queues():
        advice = (
            f"See it: {of_queue('queue show', prefix)}, and blueque ls -q {shlex.quote(prefix)}"
        )
        raise Failure(MISSING, f"{prefix!r} is a queue, not a task", advice)
    if len(prefix) < MIN_PREFIX:
        raise Failure(
            USAGE, f"{prefix!r} is too short: give at least {MIN_PREFIX} characters of the id"
        )
    word = shlex.quote(prefix)
    named = f"If it is a key: blueque ls --key {word}; a title: blueque ls --text {word}"
    advice = "It may have been deleted, or be too old to be found by the beginning of its id: give the whole id."
    if is_uuid(prefix.lower()):
        advice = f"Ids have small letters: blueque show {prefix.lower()}"
    if is_uuid(prefix):
        advice = "It may have been deleted, or be in another Redis: see the first line of blueque status."
    raise Failure(MISSING, f"no task {prefix!r}", "" if begins_uuid(prefix) else named, advice)


def find_key(inspector: Inspector, queue: str, key: str, group: str | None) -> str:
    """Return the only id with this key; end the program if no task or several have it."""
    from blueque.queries.selection import Selection  # here: the other verbs do without

    groups = () if group is None else (group,)
    require_groups(inspector, groups)
    choice = Selection(key=(key,), group=groups).choice([queue], inspector, printing.talk)
    found = inspector.listing([queue], STATUSES, MAX_FOUND, choice)
    if len(found.tasks) == 1:
        return found.tasks[0].id
    where = f"in queue {queue!r}{f' in group {group!r}' if group is not None else ''}"
    if not found.tasks:
        raise Failure(
            MISSING,
            f"no task with key {key!r} {where}",
            f"See its tasks: blueque ls -q {shlex.quote(queue)}",
        )
    with_groups = ", ".join(f"{task.group or 'none'}: {task.id}" for task in found.tasks[:3])
    raise Failure(
        USAGE,
        f"several tasks with key {key!r} {where}, by group: {with_groups}",
        "Give --group, or an id.",
    )


def print_fact(label: str, value: str) -> None:
    """Print a value beside its label; a long value, or one of several lines, as a block."""
    cut = f"\n... ({len(value) - _MOST:,} more characters: --json shows all)"
    shown = value if len(value) <= _MOST else f"{value[:_MOST]}{cut}"
    lines = [printing.clean(line) for line in shown.split("\n")]
    if printing.is_terminal():
        lines = [
            piece
            for line in lines
            for piece in printing.lines(line, printing.terminal_width() - _LABEL)
        ]
        hidden = len(lines) - _MAX_LINES
        if hidden > 0:
            lines[_MAX_LINES:] = [
                f"... ({hidden} more line{'' if hidden == 1 else 's'}: --json shows all)"
            ]
    title = printing.clean(label)
    if len(title) >= _LABEL:
        lines.insert(0, "")
    for n, line in enumerate(lines):
        click.echo(
            f"{title if n == 0 else '':<{_LABEL}}{line}" if line else title if n == 0 else ""
        )
