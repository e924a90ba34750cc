"""Hosts: the listeners of each, and what they have run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from blueque.model.parts import grouped
from blueque.queries.listeners import Node
from blueque.queries.timeline import Run, Timeline
from blueque.report import phrases, timeline
from blueque.report.scales import Times
from blueque.report.summary import Bar
from blueque.report.timeline import Look
from blueque.text import hints
from blueque.web.visit import Visit, zone_of

# The states of listeners, the worst first.
STATES = ("dead", "silent", "gone", "draining", "paused", "unattended", "1.0.0", "up")
NONE = "no listener"  # the state of a host where something ran
TROUBLE = {"dead", "silent", "gone"}


class Host(NamedTuple):
    """A host and what its listeners did. seen: seconds since its last beat.

    share: of the time in which its listeners ran something; None: unknown.
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
    nodes: Iterable[Node], found: Timeline, visit: Visit, most: int, first: int = 0, height: int = 7
) -> Strip:
    """Return hosts that have listeners, or have run something, with pictures of what ran.

    height: of a lane, in pixels.
    """
    look = look_of(found.since, found.until, visit, height)
    by_host = grouped(nodes, lambda node: node.host)
    runs = grouped(found.runs, lambda run: run.node.rpartition("_")[0] or run.node)
    known = {*by_host, *filter(None, runs)}
    order = sorted(known, key=lambda host: _rank(host, by_host.get(host, ()), runs.get(host, ())))
    names = phrases.hosts(order)
    shown = [
        _host(host, names[host], by_host.get(host, ()), runs.get(host, ()), look)
        for host in order[first : first + most]
    ]
    return Strip(timeline.axis(look), shown, max(len(order) - first - most, 0))


def deaths(found: Timeline) -> list[tuple[str, int, float]]:
    """Return the hosts whose listeners were found dead, last first: how many, and when the last one was."""
    by_host: dict[str, dict[str, float]] = {}
    for node, at in found.deaths:
        by_host.setdefault(node.rpartition("_")[0] or node, {})[node] = at
    dead = [(host, len(nodes), max(nodes.values())) for host, nodes in by_host.items()]
    return sorted(dead, key=lambda one: -one[2])


def by_queue(found: Timeline, visit: Visit, height: int = 7) -> Mapping[str, Markup]:
    """Return a picture of what ran for each queue."""
    look = look_of(found.since, found.until, visit, height)
    bars: dict[str, list[Bar]] = {}
    for run in found.runs:
        bars.setdefault(run.queue, []).append(bar(run, found.until))
    return {queue: timeline.picture(bars[queue], look) for queue in sorted(bars)}


def look_of(since: float, until: float, visit: Visit, height: int) -> Look:
    """Return how a page draws what ran: in the zone of the viewer, with links, until now."""
    times = Times(since, until, zone_of(visit.zone))
    return Look(times, partial(_when, visit), visit.task_url, height, is_live=True)


def bar(run: Run, until: float) -> Bar:
    """Return a run as a bar. until: the end of one that runs still."""
    return Bar(run.began, run.ended or until, word_of(run), run.task, run.queue, run.node)


def word_of(run: Run) -> str:
    """Return the outcome of a run in words."""
    return {None: "running", "released": "given back"}.get(run.outcome) or run.outcome or ""


def worst(nodes: Sequence[Node]) -> str:
    """Return the worst state of listeners."""
    states = {node.state for node in nodes}
    return next((state for state in STATES if state in states), "up" if states else NONE)


def _rank(host: str, nodes: Sequence[Node], runs: Sequence[Run]) -> tuple[bool, bool, bool, object]:
    is_busy = any(node.held for node in nodes)
    is_lost = not nodes and any(run.outcome == "lost" for run in runs)
    is_well = not is_lost and worst(nodes) not in TROUBLE
    return is_well, not nodes, not is_busy, phrases.natural(host)


def _host(host: str, short: str, nodes: Sequence[Node], runs: Sequence[Run], look: Look) -> Host:
    beats = [node.seen for node in nodes if node.seen is not None]
    listeners = {node.id for node in nodes}
    since, until = look.times.since, look.times.until
    worked = sum(min(run.ended or until, until) - max(run.began, since) for run in runs)
    whole = (until - since) * len(listeners)
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
        min(max(worked / whole, 0.0), 1.0) if whole > 0 else None,
        timeline.picture([bar(run, until) for run in runs], look),
    )


def _when(visit: Visit, at: float) -> str:
    there, today = visit.at(at), visit.at(visit.now)
    if there is None:
        return "?"
    if today is not None and there.date() == today.date():
        return f"{there:%H:%M}"
    return f"{there.day} {there:%b %H:%M}"
