"""What has happened lately in all queues, and who did it."""

from __future__ import annotations

from blueque.queries import history
from blueque.sentences import events
from blueque.web.views.tasks import matching, names
from blueque.web.visit import Page, Visit

MOST = 200  # events on the page
MOST_QUEUES = 200  # whose events are read
BY_PEOPLE = {
    *("cancelled", "requeued", "prioritized", "moved", "put_first", "interrupted", "paused"),
    *("resumed", "limited", "deleted", "unblocked"),
}


def activity(visit: Visit) -> Page:
    """Return the newest events of queues."""
    queues = matching(visit.one("queue").strip(), visit)[:MOST_QUEUES]
    found = history.newest(visit.reader.client.connections, queues, MOST)
    if visit.one("by") == "people":
        found = [event for event in found if event.event in BY_PEOPLE]
    rows = [(event, events.word(event), events.who(event), events.facts(event)) for event in found]
    named = names([event.task for event in found if event.task], visit)
    context = {"rows": rows, "names": named, "queues": visit.reader.queues()[:1000]}
    return Page("activity.html", context)
