"""`blueque wait`: wait until tasks have ended."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import choose
from blueque.cli.endings import detached, tell_ending
from blueque.cli.failure import ATTENTION, MISSING, NOT_COMPLETE, TIMED_OUT, USAGE, Failure
from blueque.cli.held import MOST, MOST_NAMED, Held
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.options import Invocation, shared_options
from blueque.cli.selection import is_of_groups, require_one_way, selected, selection_of
from blueque.cli.unserved import warn_of_no_listener
from blueque.cli.values import DURATION
from blueque.documents.contents import value_of
from blueque.documents.tasks import of_wait
from blueque.errors import WaitTimedOut
from blueque.model.states import STATUSES
from blueque.queries import groups
from blueque.queries.queue_ends import QueueWatcher
from blueque.queries.queues import counts
from blueque.queries.task_ends import Watcher, ends
from blueque.text.hints import of_group

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.queries.selection import Selection


@click.command()
@click.argument("prefixes", nargs=-1, metavar="[ID... | -]")
@pattern_option
@selection_of("key", "group", "tags")
@click.option("--timeout", type=DURATION, help="Wait at most this long: 90, 30s, 2h.")
@click.option(
    "--any", "is_any", is_flag=True, help="Wait until one has ended; default: until all have."
)
@click.option(
    "--results",
    "has_results",
    is_flag=True,
    help="Print a line of JSON for each task when it ends, with its whole result or error.",
)
@shared_options
def wait(
    invocation: Invocation,
    prefixes: Sequence[str],
    patterns: Sequence[str],
    selection: Selection,
    timeout: float | None,
    is_any: bool,
    has_results: bool,
) -> int:
    """Wait until tasks have ended, or until a queue has nothing left to do.

    \b
    blueque wait 7c1f --timeout 2h && blueque enqueue mail.send '"it is done"'
    blueque wait --group night-1 --results > results.jsonl
    blueque ls --ids | blueque wait -
    blueque wait -q 'render.*'

    Options select up to 10,000 tasks in all states, including ended ones. It does not wait for tasks that are enqueued
    later. --group NAME alone waits for all tasks of a closed group, however many. Tasks of a group that were archived
    or deleted count as ended.

    It prints a line on standard error for each task that ends. --json prints all tasks at the end.

    A failed task that will be retried has not ended. If a blocked task cannot go on because a task that it waits for
    has failed, a line says so once.

    With -q alone it waits until no task of these queues is in line, running, blocked or overdue, however the tasks
    end. It does not wait for tasks that are scheduled for later, such as a retry in a minute.

    The exit code is 0 if all are complete, and 4 if one failed, was cancelled or lost. It is 124 after the timeout,
    and 3 if a task, group or queue does not exist. Ctrl-C ends only the waiting.
    """
    selects = require_one_way(prefixes, patterns, (), selection)
    client = invocation.client()
    if selects and not selection.is_any:
        if is_any or has_results:
            raise click.UsageError("--any and --results are for tasks: -q alone is for queues")
        return _wait_for_queues(invocation, client, patterns, timeout, invocation.as_json)
    if selects:
        tasks, code, gone = _selected(client, patterns, selection)
        if code == ATTENTION:
            is_alone = not (is_any or has_results or invocation.as_json)
            large = _large_group(patterns, selection, is_alone, len(tasks))
            return _wait_for_group(client, large, timeout)
    else:
        (tasks, code), gone = choose(client.get_inspector(), prefixes), 0
    if code:
        return code
    _tell_of_open(client, selection.group)
    _tell_of_waiting(invocation, client, tasks)

    def tell(task: Task) -> None:
        tell_ending(task, has_result=not (has_results or invocation.as_json))
        if has_results:
            _print_result(task)

    ended, waiting, code = _wait_for_tasks(client, tasks, timeout, is_any, tell)
    if invocation.as_json and not has_results:
        inspector = client.get_inspector()
        now = inspector.now()
        found = of_wait(ended, inspector.tasks(waiting), code == TIMED_OUT, now)
        printing.print_json("wait", **found)
    if len(tasks) > 1 and not is_any:
        _tell_total(ended, len(waiting))
    is_bad = any(task.status != "complete" for task in ended) or gone
    return code or (NOT_COMPLETE if is_bad else 0)


def _wait_for_tasks(
    client: Client,
    tasks: Sequence[Task],
    timeout: float | None,
    is_any: bool,
    tell: Callable[[Task], None],
) -> tuple[list[Task], list[str], int]:
    """Wait until tasks, or any of them, have ended; `tell` is called for each. Return those that
    have ended, the ids of the others, and TIMED_OUT or 0.
    """
    waiting, ended, code = {task.id: task for task in tasks}, [], 0
    try:
        watcher = Watcher(client.connections, waiting)
        held = Held(client.get_inspector())
        for task in ends(watcher, client.patience, timeout, held.tell):
            del waiting[task.id]
            ended.append(task)
            tell(task)
            if is_any:
                break
    except WaitTimedOut as error:
        printing.talk(str(error))
        code = TIMED_OUT
    except KeyboardInterrupt:
        printing.talk(detached(list(waiting)))
        raise
    return ended, list(waiting), code


def _tell_of_open(client: Client, names: Sequence[str]) -> None:
    """Say of groups that are open that more tasks may join them."""
    for name in names:
        if client.group(name).progress().state == "open":
            more = "tasks that join it later are not waited for. When it has all"
            printing.talk(f"group {name} is open: {more}: {of_group('close', name)}")


def _tell_of_waiting(invocation: Invocation, client: Client, tasks: Sequence[Task]) -> None:
    """Say on a terminal how many tasks are waited for, and which queues nobody serves."""
    if sys.stderr.isatty():
        printing.talk(f"Waiting for {printing.count(len(tasks), 'task')}.")
        pending = [task for task in tasks if task.status == "pending"]
        _tell_of_no_listener(invocation, client, pending)


def _tell_of_no_listener(invocation: Invocation, client: Client, tasks: Sequence[Task]) -> None:
    """Say of the queues of some pending tasks that no listener serves them."""
    for queue in [*dict.fromkeys(task.queue for task in tasks if task.queue)][:MOST_NAMED]:
        warn_of_no_listener(invocation, client, queue, "tasks wait")


def _tell_total(ended: Sequence[Task], left: int) -> None:
    """Say how many tasks have ended how."""
    states = Counter(task.status or "gone" for task in ended)
    words = [f"{number:,} {state}" for state, number in states.items()]
    rest = [f"{left:,} not ended"] if left else []
    printing.talk(f"{printing.count(len(ended) + left, 'task')}: {', '.join([*words, *rest])}")


def _wait_for_queues(
    invocation: Invocation,
    client: Client,
    patterns: Sequence[str],
    timeout: float | None,
    as_json: bool,
) -> int:
    """Wait until nothing is left to do in these queues; return the exit code."""
    inspector, code = client.get_inspector(), 0
    queues = queues_matching(inspector.queues(), patterns)
    if sys.stderr.isatty():
        for queue in queues[:MOST_NAMED]:
            printing.talk(
                f"Waiting until nothing is left in queue {queue}: {_left(client, queue)}."
            )
        tasks = inspector.listing(queues, ["pending"], MOST).tasks
        _tell_of_no_listener(invocation, client, tasks)
    watcher, held = QueueWatcher(client.connections, queues), Held(inspector)
    try:
        for _ in ends(watcher, client.patience, timeout, held.tell_in):
            pass  # it yields no tasks
        done = f"queue {queues[0]}" if len(queues) == 1 else f"{len(queues)} queues"
        printing.talk(f"nothing is left to do in {done}")
    except WaitTimedOut as error:
        printing.talk(str(error))
        code = TIMED_OUT
    except KeyboardInterrupt:
        printing.talk("No longer waiting; the tasks go on: blueque status")
        raise
    if as_json:
        now = inspector.now()
        found = of_wait([], [], code == TIMED_OUT, now, watcher.left)
        printing.print_json("wait", **found)
    return code


def _left(client: Client, queue: str) -> str:
    """Return how many tasks of a queue have not ended, by their states."""
    numbers = counts(client.connections, [queue])
    names = ("pending", "reserved", "started", "blocked", "scheduled")
    return ", ".join(f"{numbers[name]:,} {name}" for name in names if numbers[name]) or "0 tasks"


def _selected(
    client: Client, patterns: Sequence[str], selection: Selection
) -> tuple[list[Task], int, int]:
    """Return the tasks that options select, those that have ended, too, and an exit code; MISSING:
    there are none; ATTENTION: there are more. And how many are gone that were not complete.
    """
    tasks, code = selected(client.get_inspector(), patterns, STATUSES, selection)
    is_whole = is_of_groups(patterns, selection)
    gone, bad = _tell_gone(client, selection.group) if is_whole else (0, 0)
    if not (tasks or code or gone):
        printing.talk("no tasks")
        code = MISSING
    return tasks, code, bad


def _large_group(patterns: Sequence[str], selection: Selection, is_alone: bool, number: int) -> str:
    """Return the one group that options name. is_alone: no option asks for single tasks. Raises
    Failure, with the number of tasks, if it cannot be waited for as a whole.
    """
    is_one = is_of_groups(patterns, selection) and len(selection.group) == 1
    if not (is_one and is_alone):
        raise Failure(USAGE, f"{number:,} tasks or more are too many to wait for at a time")
    return selection.group[0]


def _tell_gone(client: Client, names: Sequence[str]) -> tuple[int, int]:
    """Say how many tasks of these groups are gone. Return that, and how many were not complete."""
    all_gone = all_bad = 0
    for name in names:
        gone = groups.count_gone(client.connections, name)
        bad = groups.count_gone(client.connections, name, only_bad=True) if gone else 0
        if gone:
            are = "is" if gone == 1 else "are"
            not_complete = f", {bad:,} of them not complete" if bad else ""
            what = f"{printing.count(gone, 'task')} of group {name} {are} archived or deleted"
            printing.talk(f"{what}{not_complete}")
        all_gone, all_bad = all_gone + gone, all_bad + bad
    return all_gone, all_bad


def _wait_for_group(client: Client, name: str, timeout: float | None) -> int:
    """Wait for all tasks of a group at once; return the exit code."""
    group = client.group(name)
    if group.progress().state == "open":
        why = f"group {name!r} is open, and has too many tasks to wait for at a time"
        raise Failure(USAGE, why, f"Close it when it has all: {of_group('close', name)}")
    try:
        seen = group.wait(timeout)
    except WaitTimedOut as error:
        printing.talk(str(error))
        return TIMED_OUT
    except KeyboardInterrupt:
        printing.talk(f"No longer waiting; the group goes on: {of_group('show', name)}")
        raise
    printing.talk(f"group {name} has ended: {seen.complete} complete, {seen.bad} not")
    return NOT_COMPLETE if seen.bad else 0


def _print_result(task: Task) -> None:
    printing.print_json_line(
        "result",
        id=task.id,
        status=task.status,
        queue=task.queue,
        key=task.key,
        group=task.group,
        result=value_of(task, "result"),
        error_type=task.error_type,
        error=task.error,
    )
    sys.stdout.flush()  # for who reads the lines as they come
