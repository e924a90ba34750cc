"""Find the task that a command line names."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from blueque.cli.failure import MISSING, USAGE, Failure
from blueque.cli.named import no_group
from blueque.model.group import condition_on, group_of, is_gate
from blueque.model.ids import begins_uuid, is_uuid
from blueque.queries.listing import MAX_FOUND, MIN_PREFIX
from blueque.text.hints import of_group, of_queue, of_schedule

if TYPE_CHECKING:
    from blueque.queries.inspector import Inspector


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
        if (verb := _verb()) in ("cancel", "requeue"):
            raise Failure(MISSING, why, f"For its tasks: {of_group(verb, group)}")
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


def _verb() -> str:
    context = click.get_current_context(silent=True)
    return (context.info_name or "") if context is not None else ""
