"""The checks of `blueque doctor`: the server, everything in it, and repairs."""

from __future__ import annotations

import contextlib
import logging
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from blueque.audit import audit, server_check
from blueque.audit.audit import Finding, Report
from blueque.audit.sentinels import judge_sentinels
from blueque.audit.server_check import Check
from blueque.connection.redis import Redis
from blueque.errors import InvalidInput, NoSuchGroup, WrongGroup
from blueque.model import keys
from blueque.model.columns import to_microseconds
from blueque.model.task import Task
from blueque.producer.groups import TaskGroup
from blueque.protocol.groups import cancel_group
from blueque.queries import half_made, overview
from blueque.queries.half_made import Unfinished
from blueque.queries.inspector import Inspector
from blueque.queries.listeners import Node, is_process_gone
from blueque.system import process
from blueque.text import hints
from blueque.text.format import count, span

log = logging.getLogger("blueque")

_NOT_ALL = "its producer has not made all tasks of the workflow"


class Doctor:
    """Checks a whole Redis, and repairs findings.

    serve: returns the command that starts a listener of a queue.
    """

    def __init__(self, redis: Redis, serve: Callable[[str], str] = hints.serve) -> None:
        self._redis, self._serve = redis, serve

    def check(self, settle: float = 0.0) -> list[Check]:
        """Check the server, the due tasks, the processes on this host, and unfinished workflows and
        archive batches.

        settle: for how many seconds a process must be gone while its task is still started.
        """
        # A key of a wrong type is for the audit to report.
        with contextlib.closing(self._redis.lenient()) as reader:
            checks = [*server_check.check(reader), *judge_sentinels(reader)]
            seen = overview.overview(reader)
            queues = [line.queue for line in seen.lines]
            checks += [*server_check.judge_due(seen.lines), *server_check.judge_hosts(seen.nodes)]
            checks += [
                Check("schedules", "warn", f"schedule {each.name}: {why}.")
                for each in seen.schedules
                if (why := server_check.ahead(each, seen.now)) is not None
            ]
            checks += _aliases(self._redis.settings.aliases, queues)
            checks += _gone(reader, queues, seen.nodes, settle, self._serve)
            checks += map(_of_workflow, _half_made(reader))
            return [*checks, *_archives(reader, queues)]

    def judge_keys(self, needed: Mapping[str, int]) -> Iterator[Check]:
        """Yield the payload keys that are needed, except the first in our file: do not remove them yet.

        needed: as in a Report.
        """
        payloads = self._redis.settings.payloads
        file = None if payloads is None else payloads.file
        try:
            known = [] if file is None else [*file.read()]
        except InvalidInput as error:
            yield Check("payloads", "fail", f"{error}.")
            return
        for key, number in sorted(needed.items()):
            things = (
                "unfinished task or schedule needs"
                if number == 1
                else "unfinished tasks and schedules need"
            )
            sentence = f"{number} {things} payload key {key}"
            if file is None:
                yield Check("payloads", "ok", f"{sentence}.")
            elif key not in known:
                yield Check("payloads", "warn", f"{sentence}, which {file.path} does not have.")
            elif key != known[0]:
                sentence += f", which is not the first in {file.path}: keep it there."
                yield Check("payloads", "ok", sentence)

    def give_up_workflows(self, by: str | None = None) -> list[Finding]:
        """Cancel workflows whose producer stopped a day ago. Return what was done.

        Those that were cancelled this way and kept long enough are removed with their tasks, none
        of which has run.
        by: who asks for it. Default: this user and host.
        """
        found = list(_half_made(self._redis))
        return [_given_up(each) for each in found if self._give_up(each, process.who_of(by))]

    def _give_up(self, found: Unfinished, by: str) -> bool:
        try:
            if found.is_cancelled:
                return TaskGroup(self._redis, found.group).delete()
            now = time.time()
            return cancel_group(self._redis, found.group, by, _NOT_ALL, now, updated=found.updated)
        except (NoSuchGroup, WrongGroup) as error:  # its producer has gone on
            log.info("give_up workflow=%s: %s", found.group, error)
            return False

    def audit(self, settle: float) -> Report:
        """Scan every key. If there are findings, scan again after `settle` seconds, and report
        those in both.

        Source: docs/protocol/audit.md, "Invariants".
        """
        return audit.report(self._redis, settle)

    def repair(self, finding: Finding) -> bool:
        """Repair one finding. False: there is no repair, or the fault has changed."""
        is_repaired = audit.repair(self._redis, finding, time.time())
        if is_repaired:
            log.info(
                "%s code=%s key=%s task=%s", finding.fix, finding.code, finding.key, finding.task
            )
        return is_repaired


def _gone(
    redis: Redis, queues: list[str], nodes: list[Node], settle: float, serve: Callable[[str], str]
) -> Iterator[Check]:
    """Yield the started tasks whose process is gone from this host."""
    first = _started_without_process(redis, queues)
    if not first:
        return
    time.sleep(settle)
    again = _started_without_process(redis, sorted({task.queue or "" for task in first.values()}))
    living = {
        (node.id, node.queue)
        for node in nodes
        if node.state not in ("dead", "gone") and not is_process_gone(node)
    }
    for key in first.keys() & again.keys():
        yield _of_gone(again[key], (again[key].node, again[key].queue) in living, serve)


def _started_without_process(redis: Redis, queues: list[str]) -> dict[tuple[str, str | None], Task]:
    return {
        (task.id, task.token): task
        for task in Inspector(redis).started(queues)
        if process.is_gone(task.pid or 0, task.fields)
    }


def _aliases(aliases: Mapping[str, str], queues: Collection[str]) -> Iterator[Check]:
    """Yield the queues whose name is an alias of another one, which hides their tasks."""
    for name in aliases.keys() & set(queues):
        fact = f"{name} is an alias of queue {aliases[name]} in blueque.toml, and Redis has a queue of this name"
        advice = "a program without this file uses it: let it name the queue, and take the alias out to see its tasks"
        yield Check("aliases", "warn", f"{fact}; {advice}.")


def _archives(redis: Redis, queues: list[str]) -> Iterator[Check]:
    """Yield the unfinished archive batches."""
    inspector = Inspector(redis)
    now, records = inspector.now(), inspector.archiving(queues) if queues else []
    for queue, record in zip(queues, records, strict=True):
        age = now - (to_microseconds(record.get("beat_at", "")) or 0) / 1e6
        if record and age > server_check.FORGOTTEN:
            command = hints.of_queue(
                "archive", queue, shlex.quote(record.get("directory", "DIRECTORY"))
            )
            batch = f"batch {record.get('batch')} of its archive is {record.get('state')}"
            archiver = record.get("by", "its archiver")
            sentence = f"queue {queue}: {batch}, and {archiver} has not continued it for {span(age)}. To continue: {command}"
            yield Check("archives", "warn", sentence)


def _of_gone(task: Task, has_listener: bool, serve: Callable[[str], str]) -> Check:
    """Return which listener reports the end of a task whose process has ended."""
    fact = f"task {task.id} of queue {task.queue} is started, and its process {task.pid} is gone from this host"
    if has_listener:
        advice = f"its listener {task.node} reports its end at its next beat. If it stays so, restart that listener."
    else:
        advice = f"a listener of the queue here with its spool reports its end: {serve(task.queue or '')}."
    return Check("process", "warn", f"{fact}; {advice}")


def _half_made(redis: Redis) -> Iterator[Unfinished]:
    """Yield the abandoned incomplete workflows."""
    yield from half_made.workflows(redis, half_made.FORGOTTEN)
    yield from half_made.removable(redis, half_made.FORGOTTEN)


def _of_workflow(found: Unfinished) -> Check:
    tasks = count(found.tasks, "task")
    if found.is_cancelled:
        what = f"workflow {found.group} was cancelled before all of its tasks were there"
        return Check("tasks", "warn", f"{what}: --fix removes it with {tasks}.")
    what = (
        f"workflow {found.group} is not complete, because a producer stopped {span(found.age)} ago"
    )
    then = f"{tasks} of it cannot run. Commit it again, or --fix cancels it."
    return Check("tasks", "warn", f"{what}: {then}")


def _given_up(found: Unfinished) -> Finding:
    way = "removed, with" if found.is_cancelled else "cancelled, with"
    sentence = f"workflow {found.group} was not complete. It is {way} {count(found.tasks, 'task')}."
    return Finding("half_made", keys.group(found.group), None, None, sentence, "give_up")
