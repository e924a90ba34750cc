"""Hosts: the listeners of each, and what they have run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from blueque.queries.listeners import Node
from blueque.queries.timeline import Run, Timeline
from blueque.report import phrases
from blueque.text import hints
from blueque.web import lanes
from blueque.web.visit import Visit

# The states of listeners, the worst first.
STATES = ("dead", "silent", "gone", "draining", "paused", "unattended", "1.0.0", "up")
TROUBLE = {"dead", "silent", "gone"}


class Host(NamedTuple):
    """A host and what its listeners did. seen: seconds since its last beat. share: of the time in
    which its listeners ran something; None: it is not known.
    """

    name: str
    short: str
    state: str
    listeners: int
    busy: int
    seen: float | None
    queues: Sequence[str]
    resources: str
    version: str
    share: float | None
    picture: Markup


class Strip(NamedTuple):
    """Hosts and what they did in a span of time, those in trouble first. more: how many are left out."""

    axis: Markup
    hosts: Sequence[Host]
    more: int


def strip(
    nodes: Iterable[Node],
    timeline: Timeline,
    visit: Visit,
    most: int,
    first: int = 0,
    height: int = 7,
) -> Strip:
    """Return hosts with pictures of what ran. height: of a lane, in pixels."""
    across = lanes.Span(timeline.since, timeline.until)
    by_host: dict[str, list[Node]] = {}
    for node in nodes:
        by_host.setdefault(node.host, []).append(node)
    runs: dict[str, list[Run]] = {}
    for run in timeline.runs:
        runs.setdefault(run.node.rpartition("_")[0], []).append(run)
    order = sorted(by_host, key=lambda host: _rank(host, by_host[host]))
    names = phrases.hosts(order)
    shown = [
        _host(host, names[host], by_host[host], runs.get(host, ()), across, visit, height)
        for host in order[first : first + most]
    ]
    return Strip(lanes.axis(across, visit), shown, max(len(order) - first - most, 0))


def by_queue(timeline: Timeline, visit: Visit, height: int = 7) -> Mapping[str, Markup]:
    """Return a picture of what ran for each queue."""
    across = lanes.Span(timeline.since, timeline.until)
    runs: dict[str, list[Run]] = {}
    for run in timeline.runs:
        runs.setdefault(run.queue, []).append(run)
    return {queue: lanes.picture(runs[queue], across, visit, height, 3) for queue in sorted(runs)}


def worst(nodes: Sequence[Node]) -> str:
    """Return the worst state of listeners."""
    states = {node.state for node in nodes}
    return next((state for state in STATES if state in states), "up")


def _rank(host: str, nodes: Sequence[Node]) -> tuple[bool, bool, object]:
    is_busy = any(node.held for node in nodes)
    return worst(nodes) not in TROUBLE, not is_busy, phrases.natural(host)


def _host(
    host: str,
    short: str,
    nodes: Sequence[Node],
    runs: Sequence[Run],
    across: lanes.Span,
    visit: Visit,
    height: int,
) -> Host:
    beats = [node.seen for node in nodes if node.seen is not None]
    listeners = {node.id for node in nodes}
    worked = sum(
        min(run.ended or across.until, across.until) - max(run.began, across.since) for run in runs
    )
    length = across.until - across.since
    resources = {hints.words_of(node.resources) for node in nodes if node.resources}
    return Host(
        host,
        short,
        worst(nodes),
        len(listeners),
        len({node.id for node in nodes if node.held}),
        min(beats, default=None),
        sorted({node.queue for node in nodes}),
        "; ".join(sorted(resources)),
        ", ".join(sorted({node.version for node in nodes if node.version})),
        min(worked / (length * len(listeners)), 1.0) if length > 0 else None,
        lanes.picture(runs, across, visit, height, 2 if height < 12 else 3),
    )
