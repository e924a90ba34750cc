"""Groups and feeds: the progress of many tasks that belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from blueque.errors import NoSuchGroup
from blueque.model.group import condition_on, shown_state
from blueque.queries import feeds, groups
from blueque.queries.groups import GroupSeen
from blueque.queries.listing import run_time
from blueque.sentences import consent
from blueque.text.format import count
from blueque.text.what import what
from blueque.web import graph, own_queues
from blueque.web.views.tasks import result
from blueque.web.visit import Page, Visit

MOST = 200  # groups on the page
MOST_BAD = 50
MOST_RESULTS = 50  # of the first tasks of a group
MOST_QUEUES = 200  # whose feeds are read
MOST_READ = 1000  # tasks of a group before an order for it
ORDERS = {"cancel": "Cancel", "requeue": "Requeue failed", "close": "Close"}
KILLS = "A running task gets SIGTERM and, after its grace, SIGKILL"
SAID = {  # after an order
    "cancel": "Listeners and schedulers cancel its tasks step by step.",
    "requeue": "Its failed and cancelled tasks are in line again, or wait for others again.",
    "close": "No more tasks can join it.",
}


class Share(NamedTuple):
    """How many of some tasks are complete, bad and open, as parts of a bar."""

    complete: float
    bad: float


def all_groups(visit: Visit) -> Page:
    """Return all groups, newest first, and the feeds of all queues."""
    found = own_queues.all_groups(visit.reader.client, visit.site)
    shown = [(seen, state_of(seen), share_of(seen)) for seen in found[:MOST]]
    queues = visit.reader.queues()
    context = {
        "groups": shown,
        "more": len(found) - len(shown),
        "feeds": [*_feeds(visit, queues[:MOST_QUEUES])],
    }
    return Page("groups.html", context)


def one_group(visit: Visit) -> Page:
    """Return one group: its progress, what holds it up, and how its tasks depend on each other."""
    name, reader = visit.params["name"], visit.reader
    try:
        seen = own_queues.one_group(name, reader.client, visit.site)
    except NoSuchGroup as error:
        raise HTTPException(404, f"There is no group {name}.") from error
    ids = groups.bad_members(reader.client.connections, name, MOST_BAD)
    bad = reader.inspector.with_contents(reader.inspector.tasks(ids))
    first = groups.members(reader.client.connections, name, 0, MOST_RESULTS)
    done = [task for task in reader.inspector.tasks(first) if task.status == "complete"]
    done = reader.inspector.with_contents(own_queues.mine_of(done, visit.site), ("what", "result"))
    context = {
        "seen": seen,
        "state": state_of(seen),
        "said": SAID,
        "orders": [(verb, ORDERS[verb]) for verb in allowed(seen, visit)],
        "share": share_of(seen),
        "results": [
            (task, what(task, visit.site.hide), result(task, visit), run_time(task, visit.now))
            for task in done
        ],
        "most_results": MOST_RESULTS,
        "bad": [(task, what(task, visit.site.hide)) for task in bad if visit.site.has(task.queue)],
        "graph": graph.picture(
            own_queues.graph(condition_on(name), reader.client, visit.site), visit, seen.members
        ),
    }
    return Page("group.html", context)


def allowed(seen: GroupSeen, visit: Visit) -> list[str]:
    """Return the verbs of orders that a viewer may give to a group.

    A page for some queues gives no orders, because a group may have tasks of others.
    """
    if visit.site.queues or not visit.may_act:
        return []
    may = {
        "cancel": seen.state != "ended" and not seen.is_cancelling,
        "requeue": seen.bad > 0 and seen.is_whole and not seen.is_cancelling,
        "close": seen.state == "open",
    }
    return [verb for verb in ORDERS if may[verb]]


def question(
    visit: Visit, verb: str, mistake: str = "", form: Mapping[str, str] | None = None
) -> Page:
    """Return the page that asks before an order for a group. Raises HTTPException, NoSuchGroup."""
    form = form or {}
    seen = order_of(visit, verb, form.get("name") or visit.one("name"))
    number = _number(seen, verb)
    sentence = _cost(seen, verb, visit)
    context = {
        "seen": seen,
        "verb": verb,
        "word": verb.capitalize(),
        "sentence": f"{sentence[0].upper()}{sentence[1:]}",
        "number": number,
        "mistake": mistake,
        "form": form,
        "is_live": False,
    }
    return Page("group_order.html", context)


def order_of(visit: Visit, verb: str, name: str) -> GroupSeen:
    """Return a group for which this can be ordered. Raises HTTPException, NoSuchGroup."""
    seen = own_queues.one_group(name, visit.reader.client, visit.site)
    if visit.site.queues:
        raise HTTPException(409, "This page shows only some queues, so it cannot change groups.")
    if verb not in allowed(seen, visit):
        raise HTTPException(409, f"Group {name} is {state_of(seen)}: {verb} does nothing now.")
    return seen


def mistake_in(seen: GroupSeen, verb: str, form: Mapping[str, str]) -> str:
    """Return why an order is not given; empty: nothing is wrong."""
    number, expected = _number(seen, verb), form.get("expected", "")
    if not re.fullmatch("[0-9]{1,9}", expected) or number > int(expected):
        return "There are more tasks by now: check and confirm again."
    return ""


def _number(seen: GroupSeen, verb: str) -> int:
    return {"cancel": seen.open, "requeue": seen.bad}.get(verb, 0)


def _cost(seen: GroupSeen, verb: str, visit: Visit) -> str:
    """Return what an order for a group would do, in words."""
    redis, inspector = visit.reader.client.connections, visit.reader.inspector
    if verb == "close":
        return "no more tasks could join it, and it would end with the last of its tasks"
    if not 0 < _number(seen, verb) <= MOST_READ:
        which = count(_number(seen, verb), "task")
        if verb == "cancel":
            return f"{which} would be cancelled. {KILLS}"
        return f"those of {which} that are not archived or deleted would be in line again"
    if verb == "requeue":
        tasks = inspector.tasks(groups.bad_members(redis, seen.name))
        able = [task for task in tasks if task.status is not None]
        gone = len(tasks) - len(able)
        also = f". {consent.cannot_run_again(gone, seen.name).rstrip('.')}" if gone else ""
        return f"{consent.of_requeue(able)}{also}"
    tasks = inspector.tasks(groups.pick(redis, seen.name, MOST_READ))
    sentence = consent.of_cancel(tasks, inspector.now())
    return f"{sentence}. {KILLS}" if consent.running_of(tasks) else sentence


def state_of(seen: GroupSeen) -> str:
    """Return the state of a group in one word."""
    state = shown_state(seen.state, "cancel" in seen.record, seen.open)
    if state == "ended":
        return "failed" if seen.bad else "complete"
    return state


def share_of(seen: GroupSeen) -> Share:
    """Return the parts of the bar of a group."""
    whole = seen.members or 1
    return Share(seen.complete / whole, seen.bad / whole)


def _feeds(visit: Visit, queues: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the feeds with their states, active ones first."""
    for record in visit.reader.client.get_feeds(*queues):
        state, since = feeds.state_of(record)
        values = feeds.numbers(record)
        share = 1.0 if state == "finished" else values.get("share")
        yield {"record": record, "state": state, "since": since, "share": share, **values}
