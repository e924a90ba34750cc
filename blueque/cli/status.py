"""`blueque status`: everything on one screen: what needs attention, queues, running tasks, listeners."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from blueque import commands
from blueque.address import hide_password
from blueque.cli import feeds, show
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options
from blueque.cli.show import Column, count
from blueque.cli.tasks import as_item, finite
from blueque.feeds import state_of
from blueque.nodes import Node
from blueque.survey import MAX_FAILED, Line, Overview, entered
from blueque.task import Task
from blueque.version import __version__

MAX_ROWS = 10                                          # of running tasks, and of hosts
LONG_PAUSE = 3600.0                                    # seconds after which a pause may have been forgotten
MAX_MISFITS = 3                                        # lines of a queue that fit no listener, one line each
_SERVING = {"up", "unattended", "1.0.0"}

_QUEUES = [
    Column("QUEUE", can_shrink=True), Column("SCHED", True), Column("PEND", True), Column("RESV", True),
    Column("RUN", True), Column("DONE", True), Column("FAIL", True), Column("CANC", True), Column("OLDEST", True),
    Column("LISTENERS", True),
]
_BOUNDED = [
    Column("QUEUE", can_shrink=True), Column("MAY RUN", True), Column("RUN", True), Column("PAUSED", can_shrink=True),
]
_RUNNING = [
    Column("TASK", can_shrink=True), Column("QUEUE", can_shrink=True), Column("NODE", can_shrink=True),
    Column("PID", True), Column("ATTEMPT", True), Column("RUNNING", True),
]
_HOSTS = [
    Column("HOST", can_shrink=True), Column("LISTENERS", True), Column("BUSY", True), Column("SEEN", True), Column("STATE"),
]


@click.command()
@json_option
@shared_options
@pass_invocation
def status(invocation: Invocation, as_json: bool) -> None:
    """Show queues, running tasks and listeners on one screen.

    OLDEST is how long the next task in line has been waiting, MAY RUN how many tasks of a queue may, SEEN the time since
    the last beat. A listener is "up"; "draining" when it takes nothing new; "silent" when its beat has stood still for its
    lease; "unattended" or "1.0.0" when it has none; "dead" when others have found it so; "gone" when it has left a task
    behind. Feeds are those that have not finished, see blueque feeds. Lines that begin with ! are what somebody should
    look at; the line below may say how.
    """
    print_status(invocation, as_json)


def print_status(invocation: Invocation, as_json: bool) -> None:
    """Look at Redis once and print what there is."""
    inspector = invocation.client().get_inspector()
    overview, server = inspector.overview(), inspector.server_version()
    if as_json:
        _print_json(invocation, overview, server)
    else:
        _print_text(invocation, overview, server)


def _print_text(invocation: Invocation, overview: Overview, server: str | None) -> None:
    url, origin = _address(invocation)
    click.echo(show.within(show.clean(f"blueque {__version__} at {url} ({origin})")))
    click.echo(show.within(show.clean(f"Redis {server or '?'}, {show.stamp(overview.now, invocation.is_utc)}")))
    nodes: dict[str, list[Node]] = {line.queue: [] for line in overview.lines}
    for node in overview.nodes:
        nodes[node.queue].append(node)
    for line in overview.lines:
        its_feeds = [record for record in overview.feeds if record["queue"] == line.queue]
        for what, command in (*_attention(line, nodes[line.queue], overview.now), *_of_feeds(its_feeds, overview.now)):
            _print_attention(line.queue, what, command)
    bounded = [line for line in overview.lines if line.pause is not None or line.max_concurrency is not None]
    click.echo()
    if not overview.lines:
        click.echo("No queues yet. The first task makes one:  blueque enqueue QUEUE JSON")
        return
    _print_table(_QUEUES, [_queue_row(line) for line in overview.lines])
    if bounded:
        click.echo()
        _print_table(_BOUNDED, [_bounded_row(line, overview.now) for line in bounded])
    if overview.feeds:
        click.echo()
        _print_table(feeds.COLUMNS, [feeds.row(record, overview.now) for record in overview.feeds[:MAX_ROWS]])
        _print_rest(len(overview.feeds), "blueque feeds")
    if overview.running:
        click.echo()
        _print_table(_RUNNING, [_task_row(task, overview.now) for task in overview.running[:MAX_ROWS]])
        _print_rest(len(overview.running), "blueque ls --state started")
    hosts = _host_rows(overview.nodes)
    if hosts:
        click.echo()
        _print_table(_HOSTS, hosts[:MAX_ROWS])
        _print_rest(len(hosts), "blueque status --json")


def _attention(line: Line, nodes: Sequence[Node], now: float) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a queue, and the command that helps, if there is one."""
    queue = shlex.quote(line.queue)
    by_state: dict[str, list[Node]] = {}
    for node in nodes:
        by_state.setdefault(node.state, []).append(node)
    if line.pending and by_state.keys().isdisjoint(_SERVING):
        idle = [f"{len(by_state[state])} {state}" for state in ("silent", "draining") if state in by_state]
        waits = f"{line.pending} pending, oldest waits {show.span(line.oldest)}"
        yield f"{waits}, {', '.join(idle) or 'no listener'}", ""
    if line.pause is not None and line.pause.since is not None and now - line.pause.since > LONG_PAUSE:
        waits = f", and {line.pending} pending" if line.pending else ""
        yield f"paused {_pause(line, now)}{waits}", commands.of_queue("resume", line.queue)
    if line.max_concurrency == 0 and line.pending:
        yield f"{line.pending} pending, and 0 may run", commands.of_queue("limit", line.queue, "none")
    for misfit in line.misfits[:MAX_MISFITS]:
        need = "needs" if misfit.tasks == 1 else "need"
        what = f"{count(misfit.tasks, 'pending task')} {need} {commands.words_of(misfit.needs)}, which no listener has"
        yield what, f"blueque why {show.short_id(misfit.first)}"
    for state in ("silent", "dead", "gone"):
        if state in by_state:
            held = any(node.held for node in by_state[state])
            yield _of_silence(by_state[state]), f"{commands.serve(line.queue)}, on that host with its spool" if held else ""
    if line.lost:
        how_many = f"{_count_of(line.lost)} lost in the last day"
        yield how_many, f"blueque requeue --failed {queue} --error-type lost"
    if line.poison:
        one = f"blueque show {show.short_id(line.poison[0])}"
        command = one if len(line.poison) == 1 else f"blueque ls --queue {queue} --state failed"
        yield f"{_count_of(line.poison)} poison in the last day, lost too often to be tried again", command
    if line.overdue:
        late = f"is overdue by {show.span(line.overdue_for)}" if line.overdue == 1 else (
            f"are overdue by up to {show.span(line.overdue_for)}"
        )
        who = "nobody puts" if line.is_minded else "no listener serves it, and no scheduler has put"
        what = "it" if line.overdue == 1 else "them"
        yield f"{count(line.overdue, 'task')} {late}; {who} {what} in line", "blueque-scheduler"


def _of_feeds(records: Sequence[Mapping[str, str]], now: float) -> Iterator[tuple[str, str]]:
    """Yield the same of the feeds of a queue that stand still and might have been forgotten."""
    for record in records:
        state, since = state_of(record, now)
        stands = f"feed {record['feed']} has stood still for {show.span(None if since is None else now - since)}"
        if state == "silent":
            yield f"{stands}, {show.short_node(record.get('node', '?'))} is silent", ""
        has_begun = record.get("rows", "0") != "0"     # else a mistyped path, mostly
        if state == "stopped" and has_begun and since is not None and now - since > LONG_PAUSE:
            yield f"{stands}, nobody feeds", commands.of_queue("feeds", record["queue"])


def _pause(line: Line, now: float) -> str:
    """Return for how long, by whom and why: for 3 h 12 m by ada: deploy."""
    if line.pause is None:
        return "-"
    since = "" if line.pause.since is None else f"for {show.span(max(now - line.pause.since, 0.0))} "
    return f"{since}by {line.pause.by or 'somebody'}{f': {line.pause.reason}' if line.pause.reason else ''}"


def _of_silence(nodes: Sequence[Node]) -> str:
    held = sum(len(node.held) for node in nodes)
    tasks = f", with {count(held, 'task')}" if held else ""
    if len(nodes) == 1:
        return f"listener {show.short_node(nodes[0].id)} is {nodes[0].state}{tasks}"
    return f"{len(nodes)} listeners are {nodes[0].state}{tasks}"


def _count_of(ids: Sequence[str]) -> str:
    return f"{count(len(ids), 'task')}{' or more' if len(ids) == MAX_FAILED else ''}"


def _print_attention(queue: str, what: str, command: str) -> None:
    # The name gives way, not what is wrong with it.
    text = show.clean(what)
    name = show.within(show.clean(queue), max(8, show.terminal_width() - show.width(text) - 4))
    click.echo(show.paint(show.within(f"! {name}: {text}"), "", bold=True))
    if command:
        click.echo(show.within(f"  {show.clean(command)}"))


def _print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    click.echo("\n".join(show.table(columns, rows)))


def _print_rest(count: int, command: str) -> None:
    if count > MAX_ROWS:
        click.echo(f"({count - MAX_ROWS} more: {command})")


def _queue_row(line: Line) -> list[str]:
    counts = (line.scheduled, line.pending, line.reserved, line.started, line.complete, line.failed, line.cancelled)
    return [line.queue, *map(str, counts), show.span(line.oldest), str(line.listeners)]


def _bounded_row(line: Line, now: float) -> list[str]:
    return [line.queue, "-" if line.max_concurrency is None else str(line.max_concurrency), str(line.running),
            _pause(line, now)]


def _task_row(task: Task, now: float) -> list[str]:
    since = entered(task)
    running = "-" if since is None else show.span(now - since)
    pid, attempt = (str(number or "-") for number in (task.pid, task.attempt))
    return [show.short_id(task.id), task.queue or "-", show.short_node(task.node or "-"), pid, attempt, running]


def _host_rows(nodes: Sequence[Node]) -> list[list[str]]:
    """Return a row for each host and state, for a host may have many listeners, and each of these several queues."""
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        groups.setdefault((node.host, node.state), []).append(node)
    rows = []
    for (host, state), members in sorted(groups.items()):
        seen = [node.seen for node in members if node.seen is not None]
        everybody, busy = {node.id for node in members}, {node.id for node in members if node.held}
        rows.append([host, str(len(everybody)), str(len(busy)), show.span(min(seen, default=None)), state])
    return rows


def _print_json(invocation: Invocation, overview: Overview, server: str | None) -> None:
    url, origin = _address(invocation)
    show.print_json(
        "status",
        version=__version__,
        redis={"url": url, "origin": origin, "version": server},
        **show.times(now=overview.now),
        queues=[_queue_item(line) for line in overview.lines],
        running=[as_item(task, overview.now) for task in overview.running],
        nodes=[_node_item(node, overview.now) for node in overview.nodes],
        feeds=[feeds.item(record, overview.now) for record in overview.feeds],
    )


def _queue_item(line: Line) -> dict[str, Any]:
    item = line._asdict()
    pause = item.pop("pause")
    del item["is_minded"]                              # for the words that people are shown
    item |= {
        "paused": pause is not None, **show.times(paused_at=pause.since if pause else None),
        "paused_by": pause.by if pause else None, "paused_reason": pause.reason if pause else None,
        "misfits": [misfit._asdict() for misfit in line.misfits],
    }
    item["oldest_seconds"], item["overdue_seconds"] = finite(item.pop("oldest")), finite(item.pop("overdue_for"))
    return item


def _node_item(node: Node, now: float) -> dict[str, Any]:
    beat = None if node.seen is None else now - node.seen
    return {
        "node": node.id, "queue": node.queue, "state": node.state, "held": node.held,
        **show.times(beat=beat), "seen_seconds": node.seen, "order": node.order, "order_by": node.order_by,
    }


def _address(invocation: Invocation) -> tuple[str, str]:
    url, origin = invocation.address()
    return hide_password(url), origin
