"""The pages of hosts: who works, what is idle, what ran when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException

from blueque.model.parts import grouped
from blueque.queries.listeners import Node, names_of
from blueque.queries.resources import resources
from blueque.queries.timeline import Run, Timeline, silenced
from blueque.text import hints
from blueque.text.format import count
from blueque.text.what import what
from blueque.web import hosts, own_queues
from blueque.web.reader import MOST_QUEUES
from blueque.web.views.tasks import names
from blueque.web.visit import Page, Visit

SPANS = {"1h": 3600.0, "6h": 21600.0, "24h": 86400.0, "3d": 259200.0, "7d": 604800.0}
HOSTS_ON_PAGE = 40  # hosts on one page
MOST_ROWS = 50  # of the table of runs
_RANK = {None: 0, "not heard": 0, "lost": 1, "failed": 2}


def nodes(visit: Visit) -> Page:
    """Return the timeline of all hosts."""
    known, found, span = visit.reader.nodes(), *_timeline(visit)
    first = visit.number("first", 0)
    is_by_queue = visit.one("by") == "queue"
    strip = hosts.strip(known, found, visit, HOSTS_ON_PAGE, first, height=16)
    listeners = {node.id: node for node in known}
    states = [node.state for node in listeners.values()]
    context = {
        "strip": strip,
        "queues": hosts.by_queue(found, visit, height=16) if is_by_queue else None,
        "listeners": len(listeners),
        "states": [(state, states.count(state)) for state in hosts.STATES if state in states],
        "next": first + HOSTS_ON_PAGE if strip.more else None,
        "length": span,
        "spans": [*SPANS],
        "timeline": found,
        "deaths": hosts.deaths(found),
        "rows": rows(found.runs, visit),
        "is_cut": len(visit.reader.queues()) > MOST_QUEUES,
        "is_by_queue": is_by_queue,
    }
    return Page("nodes.html", context)


def node(visit: Visit) -> Page:
    """Return the page of a host or a listener, even if it is gone but has run something."""
    name = visit.params["name"]
    own = [one for one in visit.reader.nodes() if name in names_of(one.id)]
    found, span = _timeline(visit)
    ids = {run.node for run in found.runs if name in names_of(run.node)}
    found = found._replace(runs=[run for run in found.runs if run.node in ids])
    if not own and not ids:
        raise HTTPException(404, f"No listener of a host {name} is known.")
    slots = grouped(own, lambda one: one.id)
    able = able_of(own)
    inspector = visit.reader.inspector
    ids_held = [*dict.fromkeys(task for one in own for task in one.held)]
    held = inspector.with_contents(own_queues.mine_of(inspector.tasks(ids_held), visit.site))
    context = {
        "name": name,
        "slots": [(id, hosts.worst(some), some) for id, some in slots.items()],
        "held": {task.id: what(task, visit.site.hide) for task in held},
        "resources": resources(own, held),
        "amount": hints.amount,
        "spool": own[0].spool if own else None,
        "strip": hosts.strip(own, found, visit, HOSTS_ON_PAGE, height=16),
        "length": span,
        "spans": [*SPANS],
        "rows": rows(found.runs, visit),
        "host": own[0].host if own else name,
        "orders": {"resume" if one.state == "paused" else "pause" for one in own},
        "able": len(able),
        "busy": len({one.id for one in own if one.held and one.id in able}),
    }
    return Page("node.html", context)


def able_of(own: Sequence[Node]) -> set[str]:
    """Return the ids of the listeners that can be told to leave."""
    return {one.id for one in own if not one.is_unheard and one.state != "unattended"}


def mistake_in_drain(visit: Visit, name: str, form: Mapping[str, str]) -> str:
    """Return why listeners are not told to leave; empty: nothing is wrong."""
    nodes = visit.reader.inspector.nodes()
    number = len(able_of([one for one in nodes if name in names_of(one.id)]))
    expected = form.get("expected", "")
    if re.fullmatch("[0-9]{1,9}", expected) and number <= int(expected):
        return ""
    return f"{count(number, 'listener')} would exit by now: check and confirm again."


def rows(runs: Sequence[Run], visit: Visit) -> list[tuple[Run, str | None, str]]:
    """Return the runs of a table, each with the name of its task and the word of its outcome.

    Running and failed ones come first, then the newest. runs: earliest first.
    """
    bad = [run for run in runs if run.outcome in _RANK]
    newest = [run for run in runs if run.outcome not in _RANK][-MOST_ROWS:]
    shown = sorted([*bad, *newest], key=lambda run: (_RANK.get(run.outcome, 3), -run.began))
    shown = shown[:MOST_ROWS]
    named = names([run.task for run in shown], visit)
    return [(run, named.get(run.task), hosts.word_of(run)) for run in shown]


def _timeline(visit: Visit) -> tuple[Timeline, str]:
    """Return what ran in the span of the query, and the name of the span."""
    span = visit.one("span") if visit.one("span") in SPANS else "24h"
    found = visit.reader.timeline(visit.reader.busy_queues(), SPANS[span])
    return silenced(found, visit.reader.nodes()), span
