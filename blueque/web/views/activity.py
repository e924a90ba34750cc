"""What has happened lately in all queues, and who did it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection

from blueque.queries import history
from blueque.queries.history import Event
from blueque.sentences import events
from blueque.web import own_queues
from blueque.web.filters import times_of
from blueque.web.views.tasks import matching, names
from blueque.web.visit import Page, Visit

MOST = 200  # events on the page
MOST_QUEUES = 200  # whose events are read
MOST_READ = 20_000  # events that are searched, of all queues together
FAILURES = ("failed", "retried", "lost", "died", "expired")
FIELDS = ("queue", "who", "on", "since", "until")


def activity(visit: Visit) -> Page:
    """Return the newest events of queues that a viewer asks for."""
    queues = matching(visit.one("queue").strip(), visit)[:MOST_QUEUES]
    since, until, mistake = times_of(visit)
    is_narrowed = any(visit.one(name) for name in ("who", "on")) or visit.one("by") != "all"
    each = max(MOST_READ // max(len(queues), 1), 1) if is_narrowed else MOST
    found = visit.reader.shared(
        ("activity", visit.path_and_query, visit.zone),
        lambda: history.newest(visit.reader.client.connections, queues, each, since, until),
    )
    read = Counter(event.queue for event in found)
    shown = [event for event in found if _wants(event, visit)]
    rows = [
        (event, events.word(event), events.who(event), events.facts(event))
        for event in own_queues.events(shown[:MOST], visit.reader.client, visit.site)
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
    """Return whether a viewer asks for an event."""
    who, kind = visit.one("who").strip().lower(), visit.one("on").strip()
    wanted = {kind} if kind else _kinds(visit)
    return who in events.who(event).lower() and events.is_wanted(event, wanted)


def _kinds(visit: Visit) -> Collection[str]:
    """Return the events to show if none is named: what people do, and failures; empty: all."""
    if visit.one("by") == "people":
        return events.BY_PEOPLE
    if visit.one("by") == "all" or visit.one("who").strip():
        return ()
    return {*events.BY_PEOPLE, *FAILURES}


def _command(visit: Visit) -> str:
    """Return the command that shows the same."""
    words = ["blueque", "history", "-q", visit.one("queue").strip() or "*"]
    options = {"--since": "since", "--until": "until", "--by": "who", "--on": "on"}
    for option, name in options.items():
        words += [option, value] if (value := visit.one(name).strip()) else []
    if not visit.one("on") and (kinds := _kinds(visit)):
        for kind in ("people", *(kind for kind in FAILURES if kind in kinds)):
            words += ["--on", kind]
    return shlex.join(words)
