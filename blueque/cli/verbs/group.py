"""`blueque group`: list, show, close, cancel, requeue and remove groups of tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import Outcome
from blueque.cli.consent import require_consent
from blueque.cli.failure import REFUSED, Failure
from blueque.cli.named import no_group
from blueque.cli.options import Invocation, json_option, shared_options, yes_option
from blueque.cli.printing import Column, count, number_columns
from blueque.cli.requeueing import say_what_is_gone, say_what_they_wait_for
from blueque.cli.task_columns import TaskColumn, chosen
from blueque.documents.groups import group_item, of_group, of_groups
from blueque.errors import NoSuchGroup, WrongGroup
from blueque.model.group import MAKING, shown_state
from blueque.sentences import consent
from blueque.text import hints

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.producer.groups import TaskGroup
    from blueque.queries.groups import GroupSeen

_COLUMNS = [
    Column("GROUP", can_shrink=True),
    Column("KIND", can_shrink=True, yields=True),
    Column("STATE"),
    *number_columns("AGE", "TASKS", "COMPLETE", "BAD", "OPEN", "WAITING"),
]
_SHOWN, _MOST = 5, 1000  # tasks that are not complete: in words, and as JSON
_OF_BAD = ("id", "what", "queue", "state", "for", "error")


@click.group(subcommand_metavar="VERB [ARGS]...")
def group() -> None:
    """Manage groups of tasks: tasks that end together, and for which others can wait."""


@group.command("ls", short_help="List the groups.")
@json_option
@shared_options
def list_groups(invocation: Invocation, as_json: bool) -> None:
    """List all groups, the newest first.

    KIND is what has made it. A batch of QUEUE comes from one call that makes many tasks with keys in that queue: blueque
    enqueue --key-field, or enqueue_many; the call closes it. A workflow was made as a whole. Any other is a group.

    STATE is open as long as tasks may join, then closed, and ended after the last task has ended. One that is making is not
    complete, and none of its tasks runs: its producer puts more there, or has died. One that is cancelling was cancelled,
    and some of its tasks have not ended.

    OPEN counts the tasks that have not ended, BAD those that failed, were cancelled or are gone. WAITING counts the tasks
    that wait for the group. For each group that is making, standard error says when its last
    tasks came.

    One that has ended is forgotten after a while, see blueque group rm.
    """
    from blueque.queries import groups  # here: --help does without

    found = groups.load_all(invocation.client().connections)
    now = time.time()
    if as_json:
        printing.print_json("groups", **of_groups(found, now))
    elif found:
        _print_table(found, now)
    else:
        printing.talk("no groups")


@group.command(short_help="Show how far a group is.")
@click.argument("name", metavar="GROUP")
@json_option
@shared_options
def show(invocation: Invocation, name: str, as_json: bool) -> None:
    """Show how far a group is, and which of its tasks are BAD: have failed, were cancelled or are gone.

    Five of these are named; with --json, 1,000.
    """
    from blueque.queries import groups  # here: --help does without

    group = invocation.client().group(name)
    seen, now = _seen(invocation, group), time.time()
    bad = groups.bad_members(invocation.client().connections, name, _MOST)
    if as_json:
        printing.print_json("group", **of_group(seen, bad, now))
        return
    _print_table([seen], now)
    tasks: Sequence[Task] = ()
    if bad:
        inspector = invocation.client().get_inspector()
        tasks = inspector.with_contents(inspector.tasks(bad[:_SHOWN]))
        shown = chosen(_OF_BAD, invocation.hider(False))
        rows = [[_cell(one, task, now) for one in shown] for task in tasks]
        click.echo("\n" + "\n".join(printing.table([one.column for one in shown], rows)))
    if len(bad) > _SHOWN:
        rest = f"{seen.bad - _SHOWN} more BAD tasks"
        click.echo(f"({rest}: {hints.of_group('show --json', name)})")
    can_run = any(task.status is not None for task in tasks)
    if can_run and seen.is_whole and not seen.is_cancelling:
        printing.talk(f"To run them again: {hints.of_group('requeue', name)}")


@group.command(short_help="Let no more tasks join a group.")
@click.argument("name", metavar="GROUP")
@json_option
@shared_options
def close(invocation: Invocation, name: str, as_json: bool) -> None:
    """Let no more tasks join a group: it ends with the last of its tasks.

    The program that makes the tasks does this. Do it by hand if that program has died and will not come back.
    """
    group = invocation.client().group(name)
    _seen(invocation, group)
    try:
        group.close()
    except WrongGroup as error:
        raise Failure(REFUSED, str(error), f"Or: {hints.of_group('cancel', name)}") from error
    _say(group, as_json, "closed")


@group.command(short_help="Cancel the tasks of a group that have not ended.")
@click.argument("name", metavar="GROUP")
@click.option("--reason", metavar="TEXT", help="Why; it stays with the tasks.")
@yes_option
@json_option
@shared_options
def cancel(
    invocation: Invocation, name: str, reason: str | None, is_sure: bool, as_json: bool
) -> None:
    """Cancel the tasks of a group that have not ended, and let no more join it.

    It asks first. Listeners and schedulers cancel the tasks step by step: blueque group show says how far they are.
    It is refused, with exit code 5, if the group has ended.
    """
    group = invocation.client().group(name)
    seen = _seen(invocation, group)
    facts = f"{count(seen.open, 'task')} of group {name} would be cancelled"
    if not seen.open:
        facts = f"no more tasks could join group {name}; no task of it would be cancelled"
    if not seen.has_ended:
        require_consent(is_sure, facts, "Cancel?")
    if seen.has_ended or not group.cancel(reason=reason):
        why = f"group {name!r} has ended already"
        raise Failure(REFUSED, why, f"See it: {hints.of_group('show', name)}")
    _say(group, as_json, "to be cancelled")


@group.command(short_help="Put the failed and cancelled tasks of a group in line again.")
@click.argument("name", metavar="GROUP")
@yes_option
@json_option
@shared_options
def requeue(invocation: Invocation, name: str, is_sure: bool, as_json: bool) -> None:
    """Put the failed and cancelled tasks of a group in line again.

    It asks first: with this you allow their work to start a second time. Tasks that wait for the group wait on. A task of
    the group that waits for others is blocked again if one of these has not ended yet.
    It is refused, with exit code 5, if not all tasks of the group were made: none of them may run then. And while the
    group is being cancelled: wait until its tasks have ended.
    """
    from blueque.queries import groups  # here: --help does without

    client = invocation.client()
    group, inspector = client.group(name), client.get_inspector()
    seen = _seen(invocation, group)
    bad = inspector.tasks(groups.bad_members(client.connections, name))
    able = [task for task in bad if task.status is not None]
    say_what_is_gone(name, len(bad) - len(able))
    if able:
        require_consent(is_sure, consent.of_requeue(able), "Put them in line again?")
    try:
        # What fails while a person reads the question was not asked about.
        requeued = group.requeue(only={task.id for task in able})
    except WrongGroup as error:
        raise Failure(REFUSED, str(error), f"See it: {hints.of_group('show', name)}") from error
    if as_json:
        printing.print_json("group", item=group_item(group.progress()), bad=[], requeued=requeued)
        return
    outcomes = [Outcome(task.id, task.queue, task.status) for task in inspector.tasks(requeued)]
    blocked = sum(each.status == "blocked" for each in outcomes)
    also = f", {blocked} blocked again" if blocked else ""
    in_line = count(len(requeued) - blocked, "task")
    click.echo(printing.clean(f"{name}  {in_line} in line again{also}"))
    say_what_they_wait_for(inspector, able, outcomes)
    if len(bad) > len(able) and seen.waiting:
        graph = hints.of_queue("graph", name)
        printing.talk(f"Tasks that wait for them start only with blueque unblock. See: {graph}")


@group.command("rm", short_help="Forget a group that has ended.")
@click.argument("name", metavar="GROUP")
@yes_option
@json_option
@shared_options
def remove(invocation: Invocation, name: str, is_sure: bool, as_json: bool) -> None:
    """Forget a group that has ended. Its tasks stay.

    If it was cancelled before all of its tasks were made, these are deleted too: none has run, and you can make it again.
    It asks before it deletes them.
    It is refused, with exit code 5, if the group has not ended, or tasks wait for it: blueque graph GROUP names them.
    """
    group = invocation.client().group(name)
    seen = _seen(invocation, group)
    if seen.is_deleted_with_tasks and seen.members:
        facts = f"{count(seen.members, 'task')} of workflow {name} would be deleted for good; none has run"
        require_consent(is_sure, facts, "Delete?", number=seen.members)
    try:
        group.delete()
    except WrongGroup as error:
        # Once it has ended, only the tasks that wait for it are in the way: `graph` names them.
        see = hints.of_queue("graph", name) if seen.has_ended else hints.of_group("show", name)
        raise Failure(REFUSED, str(error), f"See it: {see}") from error
    if as_json:
        printing.print_json("group", item=group_item(seen), bad=[])
    else:
        click.echo(printing.clean(f"{name}  forgotten"))


def _seen(invocation: Invocation, group: TaskGroup) -> GroupSeen:
    try:
        return group.progress()
    except NoSuchGroup as error:
        raise no_group(invocation.client().get_inspector(), group.name) from error


def _say(group: TaskGroup, as_json: bool, what: str) -> None:
    if as_json:
        printing.print_json("group", item=group_item(group.progress()), bad=[])
    else:
        click.echo(printing.clean(f"{group.name}  {what}"))


def _print_table(found: Sequence[GroupSeen], now: float) -> None:
    """Print groups, and when the last tasks came of those that are making."""
    printing.print_table(_COLUMNS, [_row(seen, now) for seen in found])
    for seen in found:
        at = seen.record.get("updated")
        if seen.state == MAKING and at is not None:
            ago = printing.span(max(now - at, 0.0))
            printing.talk(f"{seen.name} is making: its last tasks came {ago} ago")


def _cell(column: TaskColumn, task: Task, now: float) -> str:
    if column.column.title == "STATE" and task.status is None:
        return "gone"
    return column.cell(task, now, False)


def _row(seen: GroupSeen, now: float) -> list[str]:
    created = seen.record.get("created")
    age = "-" if created is None else printing.span(now - created)
    state = shown_state(seen.state, "cancel" in seen.record, seen.open)
    numbers = (seen.members, seen.complete, seen.bad, seen.open, seen.waiting)
    return [seen.name, seen.kind, state, age, *map(str, numbers)]
