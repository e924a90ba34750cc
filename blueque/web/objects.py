"""The content of each object over HTTP: what a page shows, as the command prints it with --json."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException

from blueque.audit.doctor import Doctor
from blueque.documents import doctor, numbers, orders, schedules, status, tasks
from blueque.documents import groups as of_groups
from blueque.errors import InvalidInput
from blueque.faces import why
from blueque.faces.orders import RUNS
from blueque.faces.overview import with_names
from blueque.model.group import condition_on
from blueque.model.units import parse_duration
from blueque.queries import groups
from blueque.queries import schedules as all_schedules
from blueque.queries.listeners import find_named
from blueque.queries.timeline import silenced
from blueque.sentences import attention, recurring
from blueque.sentences.start import seconds_to_start, starts
from blueque.web import own_queues
from blueque.web.filters import filter_of
from blueque.web.views.schedule import mine
from blueque.web.views.tasks import look, matching
from blueque.web.visit import Visit

MOST = 1000  # groups and entries of a history
MOST_QUEUES = 1000  # whose feeds and statistics are read

Content = Mapping[str, Any]


def _status(visit: Visit) -> Content:
    reader, site = visit.reader, visit.site
    seen = with_names(reader.inspector, reader.overview_now())
    concerns = attention.concerns(seen, site.serve)
    return status.of_overview(seen, concerns, (site.address, site.origin), site.hide)


def _tasks(visit: Visit) -> Content:
    wanted = filter_of(visit)
    if wanted.mistake:
        raise InvalidInput(wanted.mistake)
    listing = look(wanted, wanted.limit, visit, ("what",))
    waiting = [task for task in listing.tasks if task.status == "pending"]
    is_pending = [*wanted.shown] == ["pending"]
    begins = starts(visit.reader.inspector, waiting) if is_pending else {}
    return tasks.of_list(listing, visit.site.hide, lambda task: None, begins)


def _task(visit: Visit) -> Content:
    found, inspector = visit.reader.task(_required(visit, "id")), visit.reader.inspector
    signs, others = (
        inspector.signs(found, visit.now),
        own_queues.dependencies(found, visit.reader.client, visit.site),
    )
    content = tasks.of_task(found, signs, others, visit.site.hide)
    hidden = {name: visit.site.hide(content["item"][name]) for name in ("result", "checkpoint")}
    return {**content, "item": content["item"] | hidden}


def _why(visit: Visit) -> Content:
    task, site = visit.reader.task(_required(visit, "id")), visit.site
    inquiry, found = why.load(visit.reader.inspector, task.id, site.has_handler)
    seconds = seconds_to_start(inquiry, found)
    return tasks.of_inquiry(inquiry, own_queues.reasons(inquiry, found, site), seconds, site.hide)


def _graph(visit: Visit) -> Content:
    name, reader = visit.one("id"), visit.reader
    if name:
        return tasks.of_graph(own_queues.graph(reader.task(name).id, reader.client, visit.site))
    group = own_queues.one_group(_required(visit, "group"), reader.client, visit.site)
    return tasks.of_graph(own_queues.graph(condition_on(group.name), reader.client, visit.site))


def _history(visit: Visit) -> Content:
    found = visit.reader.task(_required(visit, "id"))
    history = visit.reader.client.get_history(found.id)
    if history is None:
        raise HTTPException(404, f"There is no task {found.id}.")
    return tasks.of_history(found.id, history)


def _node(visit: Visit) -> Content:
    name, reader = _required(visit, "name"), visit.reader
    own = find_named(reader.overview_now().nodes, name)
    if not own:
        raise HTTPException(404, f"No listener of a host {name} is known.")
    ids = dict.fromkeys(task for node in own for task in node.held)
    held = reader.inspector.with_contents(reader.inspector.tasks([*ids]))
    return status.of_node(own, held, reader.inspector.now(), visit.site.hide)


def _nodes(visit: Visit) -> Content:
    seen = visit.reader.overview_now()
    names = {*_queues(visit)}
    return status.of_nodes([node for node in seen.nodes if node.queue in names], seen.now)


def _timeline(visit: Visit) -> Content:
    seconds = parse_duration(visit.one("since", "12h"))
    found = visit.reader.client.get_timeline(_queues(visit), seconds)
    return numbers.of_timeline(silenced(found, visit.reader.nodes()))


def _statistics(visit: Visit) -> Content:
    days = visit.number("days", 7, 1, 90)
    return numbers.of_statistics(visit.reader.inspector.statistics(_queues(visit), days), days, ())


def _failures(visit: Visit) -> Content:
    days = visit.number("days", 7, 1, 90)
    return numbers.of_failures(visit.reader.inspector.failures(_queues(visit), days), days)


def _schedules(visit: Visit) -> Content:
    reader, limit = visit.reader, visit.number("limit", 50, 1, MOST)
    queues = _queues(visit)
    seen = [
        each
        for each in all_schedules.load_all(reader.client.connections)
        if visit.site.has(each.record.get("queue"))
        and (not visit.one("queue") or each.record.get("queue") in queues)
    ]
    return schedules.of_schedules(seen[:limit], len(seen), visit.now, visit.site.hide)


def _schedule_history(visit: Visit) -> Content:
    schedule = mine(visit, _required(visit, "name"))
    seen, found = schedule.seen, schedule.history(visit.number("limit", 20, 1, 100))
    states = all_schedules.statuses(visit.reader.client.connections, found)
    return schedules.of_history(seen, found, states)


def _recurring(visit: Visit) -> Content:
    schedule = mine(visit, _required(visit, "name"))
    seen, recent = schedule.seen, schedule.history(recurring.RECENT)
    reasons = recurring.why_nothing(seen, recent, visit.reader.inspector)
    return schedules.of_recurring(seen, recurring.planned(schedule), reasons, visit.site.hide)


def _log(visit: Visit) -> Sequence[Content]:
    """Return the lines of one attempt; the last one if the query names none."""
    task = visit.reader.task(_required(visit, "id"))
    lines, _ = visit.reader.client.get_log(task.id)
    last = (task.attempt if task.status in RUNS else None) or (lines[-1].attempt if lines else 0)
    attempt, stream = visit.number("attempt", last), visit.one("stream")
    wanted = [line for line in lines if line.attempt == attempt and stream in ("", line.stream)]
    number = visit.number("lines", len(wanted))
    return [tasks.of_line(line) for line in wanted[len(wanted) - min(number, len(wanted)) :]]


def _queue_show(visit: Visit) -> Content:
    names = matching(_required(visit, "queue"), visit)
    if not names:
        raise HTTPException(404, f"There is no queue {visit.one('queue')}.")
    return orders.of_queue_show(visit.reader.inspector, names[:MOST_QUEUES])


def doctor_of(visit: Visit) -> Content:
    """Return the findings of the last scan of every key. Raises HTTPException if there was none lately."""
    scan, site = visit.reader.scan.seen(), visit.site
    if scan is None or scan.report is None:
        why = scan.trouble if scan and scan.trouble else "There was no check of every key lately"
        raise HTTPException(404, f"{why.rstrip('.')}: start one with POST /doctor.")
    mine = [each for each in scan.report.findings if not site.queues or site.has(each.queue)]
    report = scan.report._replace(findings=mine)
    found = Doctor(visit.reader.client.connections, site.serve).check()
    checks = own_queues.checks(found, site)
    return doctor.of_doctor(
        checks, report, (), (site.address, site.origin), scan.ended or scan.began
    )


def _groups(visit: Visit) -> Content:
    client = visit.reader.client
    feeds = client.get_feeds(*_queues(visit))
    return of_groups.of_groups(own_queues.all_groups(client, visit.site), feeds, time.time())


def _group(visit: Visit) -> Content:
    name, reader = _required(visit, "name"), visit.reader
    seen = own_queues.one_group(name, reader.client, visit.site)
    bad = groups.bad_members(reader.client.connections, name, MOST)
    if visit.site.queues:
        bad = [task.id for task in own_queues.mine_of(reader.inspector.tasks(bad), visit.site)]
    return of_groups.of_group(seen, bad, time.time())


def _tags(visit: Visit) -> Content:
    if visit.site.queues:
        raise HTTPException(404, "Tags span all queues, and this page shows only some.")
    limit = visit.number("limit", 50, 1, MOST)
    return of_groups.of_tags(*visit.reader.inspector.tags(visit.one("prefix"), limit))


def _queues(visit: Visit) -> list[str]:
    """Return the queues that the query names; all of this page if it names none."""
    return matching(visit.one("queue").strip(), visit)[:MOST_QUEUES]


def _required(visit: Visit, name: str) -> str:
    value = visit.one(name).strip()
    if not value:
        raise InvalidInput(f"{name}= is missing in the address")
    return value


# `log` is several objects, one for each line.
OBJECTS: Mapping[str, Callable[[Visit], Content | Sequence[Content]]] = {
    "log": _log,
    "status": _status,
    "tasks": _tasks,
    "task": _task,
    "why": _why,
    "graph": _graph,
    "history": _history,
    "queues": lambda visit: status.of_queues(visit.reader.overview_now().lines),
    "hosts": _nodes,
    "host_show": _node,
    "timeline": _timeline,
    "statistics": _statistics,
    "failures": _failures,
    "schedules": _schedules,
    "schedule_history": _schedule_history,
    "recurring": _recurring,
    "queue_show": _queue_show,
    "doctor": doctor_of,
    "groups": _groups,
    "group": _group,
    "tags": _tags,
}
