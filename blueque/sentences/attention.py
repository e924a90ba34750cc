"""Say in sentences what needs attention: an overview in, concerns out. Nothing here talks to Redis.

docs/monitoring.md, "What needs attention", lists the rules.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.audit import server_check
from blueque.model.group import MAKING, condition_on, group_of
from blueque.model.parts import grouped
from blueque.queries.feeds import state_of
from blueque.queries.listeners import Stuck, own_host
from blueque.queries.listing import MAX_BLOCKED
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

LONG_PAUSE = 3600.0  # seconds after which a pause may be forgotten
LONG_OPEN = 86400.0  # seconds after which it may be forgotten to close a group
LONG_MAKING = 3600.0  # seconds without a new task after which a producer may be dead
NO_PROGRESS = 3600.0  # seconds after which a task that has reported progress may hang
PART = 10  # and a tenth of the time that it had run until its last report
TIMES, LATER = 2, 300.0  # a long run: twice the time of 19 of 20 tasks, and five minutes
MOST = 3  # concerns of one kind that get a line each
_SERVING = {"up", "unattended", "1.0.0"}
# The codes of concerns for which work stands still or is lost; the others can wait.
URGENT = {
    "no_listener",
    "silent",
    "dead",
    "gone",
    "lost",
    "poison",
    "never_fits",
    "limit",
    "overdue",
    "failing",
    "stuck",
    "persistence",
    "memory",
}
STUCK = {"no_listener", "never_fits", "limit"}  # those for which tasks wait too long


class Concern(NamedTuple):
    """One thing that needs attention.

    about: the name of a queue, group or schedule, or Redis, or listeners. code: the kind. command: what tells more or
        helps.
    """

    about: str
    code: str
    sentence: str
    command: str | None = None


def concerns(overview: Overview, serve: Callable[[str], str] = hints.serve) -> Iterator[Concern]:
    """Yield what needs attention: first in general, then by queue.

    serve: returns the command that starts a listener of a queue.
    """
    for check in server_check.concerns(overview.server or {}):
        yield Concern("Redis", check.name, check.sentence.rstrip("."), "blueque doctor")
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
        yield from _of_queue(line, nodes.get(line.queue, ()), overview.now, serve)
        yield from _of_stuck(line.queue, nodes.get(line.queue, ()), overview.now)
        yield from _of_tasks(line.queue, standing.get(line.queue, ()), overview.now)
        if line.queue in overview.tails:
            running = [task for task in overview.running if task.queue == line.queue]
            yield from _of_long(line.queue, running, overview.tails[line.queue], overview.now)
        yield from _of_feeds(open_feeds.get(line.queue, ()), overview.now)


def heading(concerns: Sequence[Concern], lines: Sequence[QueueOverview]) -> str:
    """Return how many things need attention, or else what has gone wrong all the same."""
    if concerns:
        need = "thing needs" if len(concerns) == 1 else "things need"
        return f"{len(concerns)} {need} attention"
    failed = sum(line.failures.today for line in lines)
    more = any(_is_least(line.failures.today, line) for line in lines)
    paused = sum(line.settings.pause is not None for line in lines)
    some = ["Nothing needs attention."]
    many = f"{count(failed, 'task')}{' or more' if more else ''}"
    some += [f"Today (UTC) {many} failed."] if failed else []
    some += [f"{count(paused, 'queue')} {'is' if paused == 1 else 'are'} paused."] if paused else []
    return " ".join(some)


def stands_still(task: Task, now: float) -> bool:
    """Tell whether a running task that has reported progress has not done so for long."""
    if task.status != "started" or task.progress_at is None:
        return False
    until_then = task.progress_at - (task.started or task.progress_at)
    return now - task.progress_at > max(NO_PROGRESS, until_then / PART)


def pause_words(line: QueueOverview, now: float) -> str:
    """Return since when, by whom and why: for 3 h 12 m by ada: deploy."""
    if line.settings.pause is None:
        return "-"
    since = (
        ""
        if line.settings.pause.since is None
        else f"for {span(max(now - line.settings.pause.since, 0.0))} "
    )
    return f"{since}by {line.settings.pause.by or 'unknown'}{f': {line.settings.pause.reason}' if line.settings.pause.reason else ''}"


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


def _of_queue(
    line: QueueOverview, nodes: Sequence[Node], now: float, serve: Callable[[str], str]
) -> Iterator[Concern]:
    states = grouped(nodes, lambda node: node.state)
    yield from _of_no_listener(line, states, serve)
    yield from _of_limits(line, now)
    yield from _of_misfits(line)
    for state in ("silent", "dead", "gone"):
        if state in states:
            yield Concern(
                line.queue,
                state,
                _of_silence(states[state]),
                _about_silent(line, states[state], serve),
            )
    yield from _of_failures(line)
    yield from _of_holders(line)
    if line.due.overdue:
        late = (
            f"is overdue by {span(line.due.overdue_for)}"
            if line.due.overdue == 1
            else (f"are overdue by up to {span(line.due.overdue_for)}")
        )
        what = "it" if line.due.overdue == 1 else "them"
        why = f"no scheduler has put {what} in line"
        if not line.due.is_minded:
            why = f"no listener serves the queue, and {why}"
        sentence = f"{count(line.due.overdue, 'task')} {late}: {why}"
        yield Concern(line.queue, "overdue", sentence, "blueque-scheduler")


def _of_no_listener(
    line: QueueOverview, states: Mapping[str, Sequence[Node]], serve: Callable[[str], str]
) -> Iterator[Concern]:
    if not line.counts.pending or not states.keys().isdisjoint(_SERVING):
        return
    idle = [
        f"{count(len(states[state]), 'listener')} {state}"
        for state in ("silent", "draining", "paused")
        if state in states
    ]
    waits = f"{line.counts.pending:,} pending, oldest waits {span(line.waiting.oldest_for)}"
    oldest = line.waiting.oldest
    why = f"blueque why {short_id(oldest)}" if oldest else serve(line.queue)
    yield Concern(line.queue, "no_listener", f"{waits}, {', '.join(idle) or 'no listener'}", why)


def _of_limits(line: QueueOverview, now: float) -> Iterator[Concern]:
    """Yield the pause and the limits of a queue that keep tasks from running or from coming."""
    if (
        line.settings.pause is not None
        and line.settings.pause.since is not None
        and now - line.settings.pause.since > LONG_PAUSE
    ):
        waits = f", and {line.counts.pending:,} pending" if line.counts.pending else ""
        sentence = f"paused {pause_words(line, now)}{waits}"
        yield Concern(line.queue, "paused", sentence, hints.of_queue("queue resume", line.queue))
    if line.settings.max_running == 0 and line.counts.pending:
        command = hints.of_queue("queue set", line.queue, "max-running=")
        yield Concern(
            line.queue,
            "limit",
            f"{line.counts.pending:,} pending, and the limit of the queue is 0",
            command,
        )
    if line.settings.max_pending is not None and line.counts.pending >= line.settings.max_pending:
        become = (
            "the oldest are discarded for new ones"
            if line.settings.discards
            else "producers are refused"
        )
        sentence = f"full: {line.counts.pending:,} pending, and its max_pending is {line.settings.max_pending}: {become}"
        command = hints.of_queue("queue set", line.queue, "max-pending=N")
        yield Concern(line.queue, "full", sentence, command)


def _of_misfits(line: QueueOverview) -> Iterator[Concern]:
    """Yield what pending tasks need and no listener has."""
    for misfit in line.waiting.misfits[:MOST]:
        need = "needs" if misfit.tasks == 1 else "need"
        what = f"{count(misfit.tasks, 'pending task')} {need} {hints.words_of(misfit.needs)}, which no listener has"
        yield Concern(line.queue, "never_fits", what, f"blueque why {short_id(misfit.first)}")


def _of_failures(line: QueueOverview) -> Iterator[Concern]:
    queue = shlex.quote(line.queue)
    if line.failures.lost:
        how_many = f"{_count_of(len(line.failures.lost), line)} lost in the last day"
        yield Concern(line.queue, "lost", how_many, f"blueque requeue -q {queue} --error-type lost")
    failed = f"blueque ls --queue {queue} --state failed"
    if line.failures.poison:
        command = (
            f"blueque show {short_id(line.failures.poison[0])}"
            if len(line.failures.poison) == 1
            else failed
        )
        sentence = f"{_count_of(len(line.failures.poison), line)} poison in the last day: lost too often to run again"
        yield Concern(line.queue, "poison", sentence, command)
    if line.failures.failing:
        sentence = f"{_count_of(line.failures.failing, line)} failed in the last hour, more than a fifth of those that ended"
        yield Concern(line.queue, "failing", sentence, f"{failed} --since 1h")
    if line.expired:
        sentence = f"{count(line.expired, 'task')} expired today (UTC): not started in time"
        command = f"blueque ls -q {shlex.quote(line.queue)} --state cancelled"
        yield Concern(line.queue, "expired", sentence, command)


def _of_holders(line: QueueOverview) -> Iterator[Concern]:
    """Yield what failed and cancelled tasks keep from running, and what waits for those that are gone."""
    if line.orphans:
        more = " or more" if line.counts.blocked > MAX_BLOCKED else ""
        verb = "waits" if len(line.orphans) == 1 else "wait"
        sentence = (
            f"{count(len(line.orphans), 'task')}{more} {verb} for what is gone, and cannot run"
        )
        command = f"blueque why {short_id(line.orphans[0])}"
        yield Concern(line.queue, "held", sentence, command)
    if not line.holders:
        return
    held = sum(holder.held for holder in line.holders)
    waits = f"{count(held, 'task')} {'waits' if held == 1 else 'wait'} for"
    if len(line.holders) == 1:
        holder = line.holders[0]
        name = short_id(holder.task)
        ended = "has failed" if holder.status == "failed" else "was cancelled"
        verb = "requeue" if holder.broken_by is None else "why"
        yield Concern(
            line.queue, "held", f"{waits} {name}, which {ended}", f"blueque {verb} {name}"
        )
        return
    sentence = f"{waits} {len(line.holders)} tasks that failed or were cancelled"
    yield Concern(line.queue, "held", sentence, "blueque ls --state held")


def _of_groups(holders: Sequence[Holder]) -> Iterator[Concern]:
    """Yield the groups that keep tasks from running."""
    for holder in holders[:MOST]:
        name = group_of(holder.task) or ""
        waits = f"{count(holder.held, 'task')} {'waits' if holder.held == 1 else 'wait'} for it"
        sentence = f"{waits}, but not all of its tasks are complete"
        command = hints.of_group("requeue", name)
        yield Concern(holder.task, "held", sentence, command)
    if len(holders) > MOST:
        sentence = f"tasks wait for {len(holders) - MOST} more that are not complete"
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
            sentence = f"it is making, and no task has come for {age}: its producer may have died"
            command = hints.of_group("show", group)
        yield Concern(condition_on(group), "unclosed", sentence, command)
    if len(left) > MOST:
        sentence = f"{len(left) - MOST} more are open or making for long"
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
            f"{len(tasks) - MOST} more without progress for an hour or longer",
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
            f"{len(long) - MOST} more have run more than twice as long as usual",
            command,
        )


def _of_feeds(records: Sequence[Mapping[str, str]], now: float) -> Iterator[Concern]:
    """Yield the feeds of a queue whose feeder died, or that have stopped and may be forgotten."""
    for record in records:
        state, since = state_of(record)
        stands = f"feed {record['feed']} has not moved for {span(None if since is None else now - since)}"
        command = hints.of_feed("show", record["feed"], record["queue"])
        has_begun = record.get("rows", "0") != "0"  # else it is mostly a mistyped path
        if state == "stopped" and "node" in record:  # a feeder that ends leaves no name behind
            sentence = f"{stands}: {short_node(record['node'])} died while it fed it"
            yield Concern(record["queue"], "feed_stopped", sentence, command)
        elif state == "stopped" and has_begun and since is not None and now - since > LONG_PAUSE:
            yield Concern(
                record["queue"], "feed_stopped", f"{stands}: no program feeds it", command
            )


def _of_silence(nodes: Sequence[Node]) -> str:
    held = sum(len(node.held) for node in nodes)
    where = _hosts([node for node in nodes if node.held]) if held else ""
    tasks = (
        f", with {count(held, 'task')}; start one on {where} with {'its' if ' ' not in where else 'their'} spool"
        if held
        else ""
    )
    if len(nodes) == 1:
        return f"listener {short_node(nodes[0].id)} is {nodes[0].state}{tasks}"
    return f"{len(nodes)} listeners of {_hosts(nodes)} are {nodes[0].state}{tasks}"


def _hosts(nodes: Sequence[Node]) -> str:
    """Return the hosts of listeners: gpu-1, gpu-2 and 3 more."""
    names = [*dict.fromkeys(short_node(node.id).rpartition("_")[0] for node in nodes)]
    shown = names if len(names) <= MOST else names[: MOST - 1]
    last = shown.pop() if len(shown) == len(names) else f"{len(names) - len(shown)} more"
    return f"{', '.join(shown)} and {last}" if shown else last


def _about_silent(line: QueueOverview, nodes: Sequence[Node], serve: Callable[[str], str]) -> str:
    holders = [node for node in nodes if node.held]
    if holders:
        spools = {node.spool for node in holders if node.spool}
        named = {own_host(node) for node in holders}
        spool = spools.pop() if len(spools) == 1 else None
        return hints.with_spool(serve(line.queue), spool, named.pop() if len(named) == 1 else None)
    return (
        f"blueque host show {shlex.quote(short_node(nodes[0].id))}"
        if len(nodes) == 1
        else "blueque host ls"
    )


def _count_of(failed: int, line: QueueOverview) -> str:
    return f"{count(failed, 'task')}{' or more' if _is_least(failed, line) else ''}"


def _is_least(failed: int, line: QueueOverview) -> bool:
    """Tell whether more than so many may have failed: all that were looked at are among them."""
    return failed == line.failures.looked_at < line.counts.failed
