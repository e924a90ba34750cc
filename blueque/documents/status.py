"""Queues, listeners and what needs attention, for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blueque.documents.groups import feed_item
from blueque.documents.schema import to_object
from blueque.documents.tasks import as_item, finite
from blueque.model.encoding import seconds_of
from blueque.queries.resources import resources
from blueque.text.format import times
from blueque.text.what import what
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.listeners import Node
    from blueque.queries.overview import Overview
    from blueque.queries.queue_overview import QueueOverview
    from blueque.sentences.concern import Concern
    from blueque.text.redaction import Hide


def of_overview(
    overview: Overview, concerns: Sequence[Concern], address: tuple[str, str], hide: Hide
) -> dict[str, Any]:
    """Return the content of `status`. address: of Redis, without a password, and its source."""
    url, origin = address
    return {
        "version": __version__,
        "redis": {"url": url, "origin": origin, "version": server_version(overview)},
        **times(now=overview.now),
        "attention": [concern._asdict() for concern in concerns],
        "queues": [_line_item(line) for line in overview.lines],
        "running": [
            as_item(task, overview.now)
            | {"what": what(task, hide)}
            | times(printed=overview.printed.get(task.id))
            for task in overview.running
        ],
        "nodes": [node_item(node, overview.now) for node in overview.nodes],
        "feeds": [feed_item(record, overview.now) for record in overview.feeds],
    }


def of_queues(lines: Sequence[QueueOverview]) -> dict[str, Any]:
    """Return the content of `queues`."""
    return {
        "items": [
            to_object(
                "one queue",
                line.counts,
                queue=line.queue,
                running=line.running,
                listeners=line.listeners,
                max_running=line.settings.max_running,
                paused=line.settings.pause is not None,
            )
            for line in lines
        ]
    }


def of_nodes(nodes: Sequence[Node], now: float) -> dict[str, Any]:
    """Return the content of `nodes`."""
    return {**times(now=now), "items": [node_item(node, now) for node in nodes]}


def of_node(nodes: Sequence[Node], tasks: Sequence[Task], now: float, hide: Hide) -> dict[str, Any]:
    """Return the content of `node`. tasks: those that it holds."""
    items = [as_item(task, now) | {"what": what(task, hide)} for task in tasks]
    has = [
        {
            "name": one.name,
            "total": one.total,
            "used": one.used,
            "users": [{"task": task.id, "amount": amount} for task, amount in one.users],
        }
        for one in resources(nodes, tasks)
    ]
    return {**of_nodes(nodes, now), "tasks": items, "resources": has}


def node_item(node: Node, now: float) -> dict[str, Any]:
    """Return the facts about a listener of one queue."""
    beat = None if node.seen is None else now - node.seen
    more = {"beat": beat, "seen_seconds": node.seen, "ends_at": seconds_of(node.ends_at)}
    return to_object("one listener", node, node=node.id, **more)


def server_version(overview: Overview) -> str | None:
    """Return the version of the server; None if this user may not ask."""
    server: Mapping[str, Any] | None = overview.server
    return server.get("redis_version") if server is not None else None


def _line_item(line: QueueOverview) -> dict[str, Any]:
    pause, settings, waiting = line.settings.pause, line.settings, line.waiting
    return {
        "queue": line.queue,
        **line.counts._asdict(),
        "listeners": line.listeners,
        "running": line.running,
        "first": waiting.oldest,
        "oldest_seconds": finite(waiting.oldest_for),
        "runnable": waiting.runnable,
        "misfits": [misfit._asdict() for misfit in waiting.misfits],
        "overdue": line.due.overdue,
        "overdue_seconds": finite(line.due.overdue_for),
        "looked_at": line.failures.looked_at,
        "lost": line.failures.lost,
        "poison": line.failures.poison,
        "failing": line.failures.failing,
        "failed_today": line.failures.today,
        "holders": [holder._asdict() for holder in line.holders],
        "orphans": line.orphans,
        "expired": line.expired,
        "max_running": settings.max_running,
        "max_pending": settings.max_pending,
        "discards": settings.discards,
        "paused": pause is not None,
        **times(paused_at=pause.since if pause else None),
        "paused_by": pause.by if pause else None,
        "paused_reason": pause.reason if pause else None,
    }
