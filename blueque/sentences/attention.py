"""Say in sentences what needs attention: an overview in, concerns out. Nothing here talks to Redis.

docs/troubleshooting.md, "What `status` and `why` say", lists the rules.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from blueque.audit import server_check
from blueque.model.group import MAKING, condition_on, group_of
from blueque.model.parts import grouped
from blueque.queries.listeners import Stuck
from blueque.sentences.concern import MOST, URGENT, Concern
from blueque.sentences.queue_concerns import is_least, of_feeds, of_queue
from blueque.sentences.schedule_concerns import judged
from blueque.sentences.stuck import words_of
from blueque.text import hints
from blueque.text.eta import roughly
from blueque.text.format import count, span
from blueque.text.terminal import short_id, short_node

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.groups_overview import Unclosed
    from blueque.queries.holders import Holder
    from blueque.queries.listeners import Node
    from blueque.queries.overview import Overview
    from blueque.queries.queue_overview import QueueOverview

LONG_OPEN = 86400.0  # seconds after which it may be forgotten to close a group
LONG_MAKING = 3600.0  # seconds without a new task after which a producer may be dead
NO_PROGRESS = 3600.0  # seconds after which a task that has reported progress may hang
PART = 10  # and a tenth of the time that it had run until its last report
TIMES, LATER = 2, 300.0  # a long run: twice the time of 19 of 20 tasks, and five minutes


def concerns(overview: Overview, serve: Callable[[str], str] = hints.serve) -> list[Concern]:
    """Return what needs attention: urgent things first; within each, general ones, then by queue.

    serve: returns the command that starts a listener of a queue.
    """
    return sorted(_concerns(overview, serve), key=lambda each: each.code not in URGENT)


def _concerns(overview: Overview, serve: Callable[[str], str]) -> Iterator[Concern]:
    checks = [*server_check.concerns(overview.server or {})]
    for check in checks:
        yield Concern("Redis", check.name, check.sentence.rstrip("."), "blueque doctor")
    refuses = server_check.refuses_changes(checks, overview.nodes)
    yield from _versions(overview.nodes)
    yield from _clocks(overview.ahead)
    yield from _of_groups(overview.groups.holders)
    yield from _of_unclosed(overview.groups.unclosed, overview.now)
    yield from _of_schedules(overview)
    nodes = grouped(overview.nodes, lambda node: node.queue)
    still = [task for task in overview.running if stands_still(task, overview.now)]
    standing = grouped(still, lambda task: task.queue or "")
    open_feeds = grouped(overview.feeds, lambda record: record["queue"])
    for line in overview.lines:
        yield from of_queue(line, nodes.get(line.queue, ()), overview.now, serve, refuses)
        yield from _of_stuck(line.queue, nodes.get(line.queue, ()), overview.now)
        yield from _of_tasks(line.queue, standing.get(line.queue, ()), overview.now)
        if line.queue in overview.tails:
            running = [task for task in overview.running if task.queue == line.queue]
            yield from _of_long(line.queue, running, overview.tails[line.queue], overview.now)
        yield from of_feeds(open_feeds.get(line.queue, ()), overview.now)


def heading(concerns: Sequence[Concern], lines: Sequence[QueueOverview]) -> str:
    """Return how many things need attention, or else what has gone wrong nevertheless."""
    if concerns:
        need = "thing needs" if len(concerns) == 1 else "things need"
        return f"{len(concerns)} {need} attention"
    failed = sum(line.failures.today for line in lines)
    more = any(is_least(line.failures.today, line) for line in lines)
    paused = sum(line.settings.pause is not None for line in lines)
    some = ["Nothing needs attention."]
    many = f"{count(failed, 'task')}{' or more' if more else ''}"
    some += [f"Today (UTC) {many} failed."] if failed else []
    some += [f"{count(paused, 'queue')} {'is' if paused == 1 else 'are'} paused."] if paused else []
    return " ".join(some)


def stands_still(task: Task, now: float) -> bool:
    """Return whether a running task has reported progress before, but not for a long time."""
    if task.status != "started" or task.progress_at is None:
        return False
    until_then = task.progress_at - (task.started or task.progress_at)
    return now - task.progress_at > max(NO_PROGRESS, until_then / PART)


def _versions(nodes: Sequence[Node]) -> Iterator[Concern]:
    versions = Counter(
        version for _, version in {(node.id, node.version) for node in nodes if node.version}
    )
    if len(versions) > 1:
        some = ", ".join(f"{number} of {version}" for version, number in sorted(versions.items()))
        yield Concern("listeners", "versions", f"their versions differ: {some}", "blueque host ls")


def _clocks(ahead: Mapping[str, float]) -> Iterator[Concern]:
    """Yield the hosts whose clocks are ahead of the clock of Redis."""
    hosts: dict[str, float] = {}
    for node, seconds in ahead.items():
        host = short_node(node).rpartition("_")[0]
        hosts[host] = max(seconds, hosts.get(host, 0.0))
    wrong = {
        host: seconds for host, seconds in sorted(hosts.items()) if seconds > server_check.SKEW
    }
    for host, seconds in list(wrong.items())[:MOST]:
        sentence = f"the clock of {host} is at least {span(seconds)} ahead of the clock of Redis"
        yield Concern("listeners", "clock", sentence, f"blueque host show {shlex.quote(host)}")
    if len(wrong) > MOST:
        yield Concern(
            "listeners",
            "clock",
            f"{len(wrong) - MOST} more hosts with a clock that is ahead",
            "blueque host ls",
        )


def _of_groups(holders: Sequence[Holder]) -> Iterator[Concern]:
    """Yield the groups that keep tasks from running."""
    for holder in holders[:MOST]:
        name = group_of(holder.task) or ""
        waits = f"{count(holder.held, 'task')} {'waits' if holder.held == 1 else 'wait'} for it"
        sentence = f"{waits}, but not all of its tasks are complete"
        command = hints.of_group("requeue", name)
        yield Concern(holder.task, "held", sentence, command)
    if len(holders) > MOST:
        sentence = f"tasks wait for {len(holders) - MOST:,} more that are not complete"
        yield Concern("groups", "held", sentence, "blueque ls --state held")


def _of_unclosed(groups: Sequence[Unclosed], now: float) -> Iterator[Concern]:
    """Yield the groups whose producers may have died."""
    limits = {MAKING: LONG_MAKING, "open": LONG_OPEN}
    left = [each for each in groups if now - each.since > limits[each.state]]
    for group, state, since in left[:MOST]:
        age = span(now - since)
        sentence = f"it is open, and no task has joined it for {age}: no program has closed it"
        command = hints.of_group("close", group)
        if state == MAKING:
            sentence = (
                f"it is being made, and no task was added for {age}: its producer may have died"
            )
            command = hints.of_group("show", group)
        yield Concern(condition_on(group), "unclosed", sentence, command)
    if len(left) > MOST:
        sentence = f"{len(left) - MOST:,} more have been open or incomplete for long"
        yield Concern("groups", "unclosed", sentence, "blueque group ls")


def _of_schedules(overview: Overview) -> Iterator[Concern]:
    served = {line.queue for line in overview.lines if line.due.is_minded}
    for judgement, found in judged(overview.schedules, overview.now, served):
        for name, sentence in list(found.items())[:MOST]:
            command = hints.of_schedule(judgement.verb, name)
            yield Concern(f"schedule {name}", judgement.code, sentence, command)
        if len(found) > MOST:
            sentence = f"{len(found) - MOST} more {judgement.others}"
            yield Concern("schedules", judgement.code, sentence, "blueque schedule ls")


def _of_stuck(queue: str, nodes: Sequence[Node], now: float) -> Iterator[Concern]:
    """Yield the tasks that SIGKILL does not end."""
    told = [Stuck.parse(node.stuck) for node in nodes if node.state in ("up", "draining", "paused")]
    for stuck in filter(None, told):
        name = short_id(stuck.task)
        yield Concern(
            queue, "stuck", f"{name}: its listener {words_of(stuck, now)}", f"blueque why {name}"
        )


def _of_tasks(queue: str, tasks: Sequence[Task], now: float) -> Iterator[Concern]:
    """Yield the running tasks without progress."""
    for task in tasks[:MOST]:
        since = now - (task.progress_at or now)
        sentence = f"{short_id(task.id)} has reported no progress for {span(since)}"
        yield Concern(queue, "no_progress", sentence, f"blueque stack {short_id(task.id)}")
    if len(tasks) > MOST:
        command = f"blueque ls --queue {shlex.quote(queue)} --state started"
        yield Concern(
            queue,
            "no_progress",
            f"{len(tasks) - MOST:,} more without progress for an hour or longer",
            command,
        )


def _of_long(queue: str, tasks: Sequence[Task], tail: float, now: float) -> Iterator[Concern]:
    """Yield the tasks that have run much longer than most tasks of their queue."""
    long = [
        task
        for task in tasks
        if task.started is not None and now - task.started > TIMES * tail + LATER
    ]
    for task in long[:MOST]:
        name, ran = short_id(task.id), span(now - (task.started or now))
        sentence = (
            f"{name} has run for {ran}; 19 of 20 tasks of this queue took at most {roughly(tail)}"
        )
        yield Concern(queue, "long_run", sentence, f"blueque show {name}")
    if len(long) > MOST:
        command = f"blueque ls --queue {shlex.quote(queue)} --state started"
        yield Concern(
            queue,
            "long_run",
            f"{len(long) - MOST:,} more have run more than twice as long as usual",
            command,
        )
