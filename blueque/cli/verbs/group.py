"""`blueque group`: list, show, close, cancel, requeue and forget groups of tasks; and feeds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import feed_rows, printing
from blueque.cli.actions import Outcome
from blueque.cli.consent import require_consent
from blueque.cli.failure import MISSING, REFUSED, USAGE, Failure
from blueque.cli.group_rows import is_kept, print_bad, print_groups, remarks
from blueque.cli.named import no_group, queues_matching
from blueque.cli.noun import Noun
from blueque.cli.options import Invocation, reason_option, shared_options, yes_option
from blueque.cli.printing import count
from blueque.cli.requeueing import say_what_is_gone, say_what_they_wait_for
from blueque.documents.groups import group_item, of_feeds, of_group, of_groups
from blueque.errors import NoSuchGroup, WrongGroup
from blueque.queries.feeds import numbers
from blueque.sentences import consent
from blueque.text import hints

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.producer.groups import TaskGroup
    from blueque.queries.groups import GroupSeen

_queue_option = click.option(
    "-q",
    "--queue",
    metavar="QUEUE",
    help="Queue of a feed, if several queues have a feed of this name.",
)
_SHOWN, _MOST = 5, 1000  # tasks that are not complete: in words, and as JSON


@click.group(cls=Noun)
def group() -> None:
    """Manage groups of tasks, which other tasks can wait for, and feeds of files."""


@group.command("ls", short_help="List the groups and feeds.")
@shared_options
def list_groups(invocation: Invocation) -> None:
    """List all groups, the newest first, and then all feeds.

    A group is open while tasks can join it, then closed, and ended after its last task. A workflow is making until all
    of its tasks are there, and none of them runs before. A cancelled group is cancelling until all of its tasks have
    ended. A feed is feeding, stopped or finished.

    OPEN counts the tasks that have not ended, BAD those that failed, were cancelled or are gone; of a feed, the
    rows that were skipped. WAITING counts the tasks that wait for the group.
    """
    from blueque.queries import groups  # here: --help does not need it

    client = invocation.client()
    found = groups.load_all(client.connections)
    feeds = client.get_feeds(*client.get_inspector().queues())
    now = time.time()
    if invocation.as_json:
        printing.print_json("groups", **of_groups(found, feeds, now))
    elif found or feeds:
        print_groups(found, now, feeds)
    else:
        printing.talk("no groups and no feeds")


@group.command(short_help="Show the progress of a group or a feed.")
@click.argument("name", metavar="GROUP | FEED")
@_queue_option
@shared_options
def show(invocation: Invocation, name: str, queue: str | None) -> None:
    """Show the progress of a group or a feed, and what to do.

    Of a group it names five of the BAD tasks, which failed, were cancelled or are gone; with --json, 1,000. Of a feed
    it names the source and the feeding program.
    """
    from blueque.queries import groups  # here: --help does not need it

    client, now = invocation.client(), time.time()
    if (record := _feed(invocation, name, queue)) is not None:
        if invocation.as_json:
            printing.print_json("feeds", **of_feeds([record], now))
        else:
            printing.print_table(feed_rows.COLUMNS, [feed_rows.row(record, now)])
        return
    seen = _seen(invocation, client.group(name))
    bad = groups.bad_members(client.connections, name, _MOST)
    if invocation.as_json:
        printing.print_json("group", **of_group(seen, bad, now))
        return
    print_groups([seen], now)
    tasks: Sequence[Task] = ()
    if bad:
        inspector = client.get_inspector()
        tasks = inspector.with_contents(inspector.tasks(bad[:_SHOWN]))
        print_bad(tasks, now, invocation.hider(False))
    if len(bad) > _SHOWN:
        rest = f"{seen.bad - _SHOWN:,} more BAD tasks"
        click.echo(f"({rest}: {hints.of_group('show --json', name)})")
    can_run = any(task.status is not None for task in tasks)
    for remark in remarks(seen, can_run, now, invocation.is_utc):
        printing.talk(remark)


@group.command(short_help="Close a group to new tasks, or open it again.")
@click.argument("name", metavar="GROUP")
@click.option(
    "--reopen", "is_opening", is_flag=True, help="Let more tasks join a closed group again."
)
@shared_options
def close(invocation: Invocation, name: str, is_opening: bool) -> None:
    """Close a group: no more tasks can join it, and it ends with its last task.

    The program that makes the tasks does this. Do it by hand if that program has died and will not come back.

    With --reopen more tasks can join it until it is closed again. Tasks that no longer wait for the group do not wait
    again.
    """
    group = invocation.client().group(name)
    _seen(invocation, group)
    what, other = "closed", f"Or: {hints.of_group('cancel', name)}"
    if is_opening:
        other = f"See it: {hints.of_group('show', name)}"
    try:
        if is_opening:
            what = "open again" if group.reopen() else "was open"
        else:
            group.close()
    except WrongGroup as error:
        raise Failure(REFUSED, str(error), other) from error
    _say(group, invocation.as_json, what)


@group.command(short_help="Cancel the tasks of a group that have not ended.")
@click.argument("name", metavar="GROUP")
@reason_option
@yes_option
@shared_options
def cancel(invocation: Invocation, name: str, reason: str | None, is_sure: bool) -> None:
    """Cancel the unfinished tasks of a group. No more tasks can join it.

    It asks first. Listeners and schedulers cancel the tasks step by step; blueque group show shows the progress. If
    the group has already ended, the exit code is 5.
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
    _say(group, invocation.as_json, "to be cancelled")


@group.command(short_help="Put the failed and cancelled tasks of a group in line again.")
@click.argument("name", metavar="GROUP")
@yes_option
@shared_options
def requeue(invocation: Invocation, name: str, is_sure: bool) -> None:
    """Put the failed and cancelled tasks of a group in line again.

    It asks first, as the work starts a second time. Tasks that wait for the group keep waiting. A task of the group
    that waits for other tasks is blocked again until these have ended. The exit code is 5 for a workflow whose tasks
    were not all made, and while the group is being cancelled.
    """
    from blueque.queries import groups  # here: --help does not need it

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
    if invocation.as_json:
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
        printing.talk(
            f"Tasks that wait for them start only with blueque move --unblock. See: {graph}"
        )


@group.command(short_help="Forget a group that has ended, or a feed.")
@click.argument("name", metavar="GROUP | FEED")
@_queue_option
@yes_option
@shared_options
def forget(invocation: Invocation, name: str, queue: str | None, is_sure: bool) -> None:
    """Forget a group that has ended, or a feed. The tasks stay.

    It asks before it forgets a group whose results were not collected. It also asks for a workflow that was cancelled
    before all of its tasks were made, and deletes these tasks. If the group has not ended or tasks wait for it, the
    exit code is 5; blueque graph GROUP names these tasks.

    It asks before it forgets a feed: a new feed of this name feeds all rows again.
    """
    client = invocation.client()
    if (record := _feed(invocation, name, queue)) is not None:
        _forget_feed(client, record, is_sure)
        if invocation.as_json:
            printing.print_json("feeds", **of_feeds([record], time.time()))
        else:
            click.echo(printing.clean(f"{name}  forgotten"))
        return
    group = client.group(name)
    seen = _seen(invocation, group)
    if seen.is_deleted_with_tasks and seen.members:
        facts = f"{count(seen.members, 'task')} of workflow {name} would be deleted for good; none has run"
        require_consent(is_sure, facts, "Delete?", number=seen.members)
    elif seen.has_ended and seen.members and is_kept(seen, time.time()):
        facts = f"the results of {count(seen.members, 'task')} of group {name} were not collected"
        require_consent(is_sure, facts, "Forget it?")
    try:
        group.delete()
    except WrongGroup as error:
        # Once it has ended, only the tasks that wait for it are in the way: `graph` names them.
        see = hints.of_queue("graph", name) if seen.has_ended else hints.of_group("show", name)
        advice = f"See it: {see}"
        if seen.has_ended and not seen.waiting and seen.cancelled_waiters:
            advice = (
                f"They were cancelled and would wait again if requeued. Delete them first: {see}"
            )
        raise Failure(REFUSED, str(error), advice) from error
    if invocation.as_json:
        printing.print_json("group", item=group_item(seen), bad=[])
    else:
        click.echo(printing.clean(f"{name}  forgotten"))


def _forget_feed(client: Client, record: Mapping[str, str], is_sure: bool) -> None:
    done = numbers(record)
    made = [f"{done.get(name, 0):,} {name}" for name in ("tasks", "rows")]
    facts = f"feed {record['feed']} has made {made[0]} of {made[1]} and would start again"
    if "token" in record:
        facts += f"; {record.get('node')} feeds it, and would stop"
    require_consent(is_sure, facts, "Forget it?")
    client.forget_feed(record["queue"], record["feed"])


def _feed(invocation: Invocation, name: str, queue: str | None) -> Mapping[str, str] | None:
    """Return the feed of this name; None: it names a group. Ends the program if several queues have
    such a feed, or if there is neither.

    queue: the queue of a feed.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    if queue is None and inspector.has_group(name):
        return None
    queues = inspector.queues() if queue is None else queues_matching(inspector.queues(), [queue])
    found = [record for record in client.get_feeds(*queues) if record["feed"] == name]
    if len(found) == 1:
        return found[0]
    if found:
        of = ", ".join(record["queue"] for record in found)
        raise Failure(USAGE, f"several queues have a feed {name!r}: {of}", "Name it: -q QUEUE")
    if queue is not None:
        see = "See them: blueque group ls"
        raise Failure(MISSING, f"no feed {name!r} of queue {queue!r}", see)
    raise no_group(inspector, name)


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
