"""What has happened lately in all queues, and who did it."""

from __future__ import annotations

import shlex
from collections import Counter

from blueque.queries import history
from blueque.queries.history import Event
from blueque.sentences import events
from blueque.web.filters import times_of
from blueque.web.views.tasks import matching, names
from blueque.web.visit import Page, Visit

MOST = 200  # events on the page
MOST_QUEUES = 200  # whose events are read
MOST_READ = 20_000  # events that are searched, of all queues together
FIELDS = ("queue", "who", "on", "since", "until")


def activity(visit: Visit) -> Page:
    """Return the newest events of queues that a viewer asks for."""
    queues = matching(visit.one("queue").strip(), visit)[:MOST_QUEUES]
    since, until, mistake = times_of(visit)
    is_narrowed = any(visit.one(name) for name in ("who", "on", "by"))
    each = max(MOST_READ // max(len(queues), 1), 1) if is_narrowed else MOST
    found = visit.reader.shared(
        ("activity", visit.path_and_query),
        lambda: history.newest(visit.reader.client.connections, queues, each, since, until),
    )
    read = Counter(event.queue for event in found)
    shown = [event for event in found if _wants(event, visit)]
    rows = [
        (event, events.word(event), events.who(event), events.facts(event))
        for event in shown[:MOST]
    ]
    context = {
        "rows": rows,
        "names": names([event.task for event in shown[:MOST] if event.task], visit),
        "queues": visit.reader.queues()[:1000],
        "kinds": sorted(events.BY_PEOPLE | {event.event for event in found}),
        "mistake": mistake,
        "is_filtered": any(visit.one(name) for name in FIELDS),
        "is_cut": is_narrowed and each in read.values(),
        "each": each,
        "command": _command(visit),
    }
    return Page("activity.html", context)


def _wants(event: Event, visit: Visit) -> bool:
    """Tell whether a viewer asks for an event."""
    who, kind = visit.one("who").strip().lower(), visit.one("on").strip()
    if visit.one("by") == "people" and event.event not in events.BY_PEOPLE:
        return False
    return who in events.who(event).lower() and kind in ("", event.event)


def _command(visit: Visit) -> str:
    """Return the command that shows the same."""
    words = ["blueque", "history", "-q", visit.one("queue").strip() or "*"]
    options = {"--since": "since", "--until": "until", "--by": "who", "--on": "on"}
    for option, name in options.items():
        words += [option, value] if (value := visit.one(name).strip()) else []
    words += ["--on", "people"] if visit.one("by") == "people" and not visit.one("on") else []
    return shlex.join(words)
