"""Workflows, runs and feeds: how far many tasks that belong together are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.exceptions import HTTPException

from blueque.errors import NoSuchGroup
from blueque.model.group import condition_on
from blueque.queries import feeds, groups
from blueque.queries.groups import GroupSeen
from blueque.text.what import what
from blueque.web import fence, graph
from blueque.web.visit import Page, Visit

if TYPE_CHECKING:
    from blueque.queries.run_progress import RunSeen

MOST = 200  # workflows on the page
MOST_BAD = 50
MOST_QUEUES = 200  # whose runs and feeds are read


class Share(NamedTuple):
    """How many of some tasks are complete, bad and open, as parts of a bar."""

    complete: float
    bad: float


def workflows(visit: Visit) -> Page:
    """Return all workflows, the newest first."""
    found = fence.workflows(visit.reader.client, visit.site)
    shown = [(seen, state_of(seen), share_of(seen)) for seen in found[:MOST]]
    return Page("workflows.html", {"workflows": shown, "more": len(found) - len(shown)})


def workflow(visit: Visit) -> Page:
    """Return one workflow: how far it is, what holds it up, and how its tasks depend on each other."""
    name, reader = visit.params["name"], visit.reader
    try:
        seen = fence.workflow(name, reader.client, visit.site)
    except NoSuchGroup as error:
        raise HTTPException(404, f"There is no workflow {name}.") from error
    ids = groups.bad_members(reader.client.connections, name, MOST_BAD)
    bad = reader.inspector.with_contents(reader.inspector.tasks(ids))
    context = {
        "seen": seen,
        "state": state_of(seen),
        "share": share_of(seen),
        "bad": [(task, what(task, visit.site.hide)) for task in bad if visit.site.has(task.queue)],
        "graph": graph.picture(fence.graph(condition_on(name), reader.client, visit.site), visit),
    }
    return Page("workflow.html", context)


def runs(visit: Visit) -> Page:
    """Return the runs and the feeds of all queues."""
    client, now = visit.reader.client, visit.now
    queues = visit.reader.queues()[:MOST_QUEUES]
    records = client.get_runs(*queues)
    seen = visit.reader.inspector.run_progress(records, now)
    context = {
        "runs": [*zip(records, seen, map(_share_of_run, seen), strict=True)],
        "feeds": [*_feeds(visit, queues)],
        "is_cut": len(visit.reader.queues()) > MOST_QUEUES,
    }
    return Page("runs.html", context)


def state_of(seen: GroupSeen) -> str:
    """Return the state of a workflow in one word."""
    if seen.is_cancelling:
        return "cancelling"
    if seen.state == "ended":
        return "failed" if seen.bad else "complete"
    return seen.state


def share_of(seen: GroupSeen) -> Share:
    """Return the parts of the bar of a workflow."""
    whole = seen.members or 1
    return Share(seen.complete / whole, seen.bad / whole)


def _share_of_run(seen: RunSeen) -> Share | None:
    if not seen.tasks or seen.complete is None or seen.failed is None:
        return None
    return Share(seen.complete / seen.tasks, seen.failed / seen.tasks)


def _feeds(visit: Visit, queues: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the feeds with their states, those that go on first."""
    for record in visit.reader.client.get_feeds(*queues):
        state, since = feeds.state_of(record, visit.now)
        values = feeds.numbers(record)
        share = 1.0 if state == "finished" else values.get("share")
        yield {"record": record, "state": state, "since": since, "share": share, **values}
