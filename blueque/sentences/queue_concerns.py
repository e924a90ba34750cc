"""Say what needs attention about a queue: its listeners, limits, failures, and feeds.

docs/troubleshooting.md, "What `status` and `why` say", lists the rules.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from blueque.model.parts import grouped
from blueque.queries.feeds import state_of
from blueque.queries.listeners import own_host
from blueque.queries.listing import MAX_BLOCKED
from blueque.sentences.concern import MOST, Concern
from blueque.text import hints
from blueque.text.format import count, span
from blueque.text.terminal import short_id, short_node

if TYPE_CHECKING:
    from blueque.queries.listeners import Node
    from blueque.queries.queue_overview import QueueOverview

LONG_PAUSE = 3600.0  # seconds after which a pause may be forgotten
_SERVING = {"up", "unattended", "1.0.0"}


def of_queue(
    line: QueueOverview,
    nodes: Sequence[Node],
    now: float,
    serve: Callable[[str], str],
    refuses: bool,
) -> Iterator[Concern]:
    """Yield what needs attention about a queue.

    nodes: its listeners. serve: returns the command that starts one. refuses: Redis refuses
        changes, so no listener can beat.
    """
    states = grouped(nodes, lambda node: node.state)
    yield from _of_no_listener(line, states, serve)
    yield from _of_limits(line, now)
    yield from _of_misfits(line)
    for state in ("silent", "dead", "gone"):
        if state in states and state == "silent" and refuses:
            then = ": Redis refuses changes, so no beat arrives; see the line about Redis"
            sentence = _of_silence(states[state], then)
            yield Concern(line.queue, state, sentence, "blueque doctor")
        elif state in states:
            sentence = _of_silence(states[state], _with_spool(states[state]))
            command = _about_silent(line, states[state], serve)
            yield Concern(line.queue, state, sentence, command)
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
    """Yield the pause and the limits of a queue that keep tasks from running or from being added."""
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
    """Yield what failed and cancelled tasks keep from running, and what waits for tasks that are gone."""
    if line.orphans:
        more = " or more" if line.counts.blocked > MAX_BLOCKED else ""
        verb = "waits" if len(line.orphans) == 1 else "wait"
        sentence = f"{count(len(line.orphans), 'task')}{more} {verb} for tasks that are gone"
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
    sentence = f"{waits} {len(line.holders):,} tasks that failed or were cancelled"
    yield Concern(line.queue, "held", sentence, "blueque ls --state held")


def of_feeds(records: Sequence[Mapping[str, str]], now: float) -> Iterator[Concern]:
    """Yield the feeds of a queue whose feeder died, or that have stopped and may be forgotten."""
    for record in records:
        state, since = state_of(record)
        stands = f"feed {record['feed']} has made no progress for {span(None if since is None else now - since)}"
        command = hints.of_feed("show", record["feed"], record["queue"])
        has_begun = record.get("rows", "0") != "0"  # else it is mostly a mistyped path
        if state == "stopped" and "node" in record:  # a feeder that ends leaves no name behind
            sentence = f"{stands}: its feeder {short_node(record['node'])} died"
            yield Concern(record["queue"], "feed_stopped", sentence, command)
        elif state == "stopped" and has_begun and since is not None and now - since > LONG_PAUSE:
            yield Concern(
                record["queue"], "feed_stopped", f"{stands}: no program feeds it", command
            )


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


def _of_silence(nodes: Sequence[Node], then: str) -> str:
    held = sum(len(node.held) for node in nodes)
    tasks = f", with {count(held, 'task')}{then}" if held else then
    if len(nodes) == 1:
        return f"listener {short_node(nodes[0].id)} is {nodes[0].state}{tasks}"
    return f"{len(nodes)} listeners of {_hosts(nodes)} are {nodes[0].state}{tasks}"


def _with_spool(nodes: Sequence[Node]) -> str:
    holders = [node for node in nodes if node.held]
    where = _hosts(holders) if holders else ""
    return where and f"; start one on {where} with {'its' if ' ' not in where else 'their'} spool"


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
    return f"{count(failed, 'task')}{' or more' if is_least(failed, line) else ''}"


def is_least(failed: int, line: QueueOverview) -> bool:
    """Return whether more may have failed than were counted: all that were read are among them."""
    return failed == line.failures.looked_at < line.counts.failed
