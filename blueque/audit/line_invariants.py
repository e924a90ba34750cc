"""The invariants of lines, locks and limits, as pure functions; see invariants.py."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from blueque.audit.observation import Finding, Holder, LineSeen, Observation, QueueSeen
from blueque.model import keys
from blueque.model.encoding import known_count, seconds_of
from blueque.model.lines import DEFAULT, HIGHEST, KEY, Needs, needs_of, parse_needs, priority_of
from blueque.model.states import Place
from blueque.queries.waiting_lines import lacking
from blueque.text import hints

MANY = 100  # lines that a listener looks at in one go

_PRIORITY = re.compile(r"(0|-?[1-9][0-9]{0,2})(,.+)?")


def judge_lines(observed: Observation) -> Iterator[Finding]:
    """Yield the faults of the lines of all queues and of their settings."""
    alive: dict[str, dict[str, dict[str, int]]] = {}
    for (queue, node), listener in observed.listeners.items():
        if listener.state == "alive":
            resources = (parse_needs(listener.resources) or Needs()).resources
            alive.setdefault(queue, {})[node] = dict(resources)
    work = {queue for queue, seen in observed.queues.items() if seen.length}
    empty: Counter[str] = Counter()
    for (queue, name), line in observed.lines.items():
        work |= {queue} if line.length else set()
        empty[queue] += line.score is not None and not line.length
        if not {keys.line(queue, name), keys.lines(queue)} & observed.bad_keys.keys():
            yield from _line(queue, name, line, alive.get(queue, {}))
    for queue, number in empty.items():
        # A few do no harm: a listener drops them when it looks, and until then they cost nothing.
        if number > MANY:
            sentence = f"{keys.lines(queue)} has {number} lines of queue {queue} without tasks."
            yield Finding("empty_line", keys.lines(queue), None, queue, sentence, "align_line")
    for queue, seen in observed.queues.items():
        yield from _settings(queue, seen, queue in work)


def judge_locks(holders: Mapping[str, Mapping[Holder, int]]) -> Iterator[Finding]:
    """Yield the locks that more tasks hold than any of them allows.

    holders: for each lock, the tasks that hold it, and how many holders each of them allows.
    """
    for lock, limits in holders.items():
        limit = max(limits.values(), default=0)
        if len(limits) > limit:
            sentence = f"{len(limits)} tasks hold lock {lock}, which {limit} may: those that run now run on."
            place = Place("lock", "", line=lock)
            yield Finding("overfull", place.key, None, None, sentence, None, text=lock, place=place)


def _line(
    queue: str, name: str, seen: LineSeen, alive: dict[str, dict[str, int]]
) -> Iterator[Finding]:
    needs, finder = needs_of(name), _Finder(queue, name)
    if needs is None or not _has_priority(name):
        yield from _misnamed(seen, finder)
    elif seen.length:
        yield from _listing(needs, seen, finder)
        yield from _unfit(needs, seen, alive, finder)
    elif seen.score is None and seen.is_waiting:
        sentence = f"{finder.line} has no tasks any more, and is not in {keys.lines(queue)}."
        yield finder.find("empty_line", keys.waiting(needs.lock or ""), sentence, "align_line")


class _Finder(NamedTuple):
    """Creates the findings about one line."""

    queue: str
    name: str

    @property
    def line(self) -> str:
        return f"line {self.name} of queue {self.queue}"

    def find(
        self, code: str, key: str, sentence: str, fix: str | None, task: str | None = None
    ) -> Finding:
        place = Place("line", self.queue, line=self.name)
        return Finding(code, key, task, self.queue, sentence, fix, text=self.name, place=place)


def _misnamed(seen: LineSeen, finder: _Finder) -> Iterator[Finding]:
    sentence = f"{finder.line} has a name that is not valid"
    if seen.length:
        key = keys.line(finder.queue, finder.name)
        sentence += f", and no listener takes its {_tasks(seen)}."
        yield finder.find("bad_line", key, sentence, None)
    elif seen.score is not None:
        yield finder.find("bad_line", keys.lines(finder.queue), f"{sentence}.", "align_line")


def _listing(needs: Needs, seen: LineSeen, finder: _Finder) -> Iterator[Finding]:
    """Check how a line with tasks is listed."""
    line, listing = finder.line, keys.lines(finder.queue)
    if seen.score is None:
        wait = "waits" if seen.length == 1 else "wait"
        sentence = (
            f"{line} is not in {listing}: no listener looks there, and {_tasks(seen)} {wait}."
        )
        yield finder.find("hidden_line", listing, sentence, "align_line")
        return
    if seen.score != priority_of(finder.name):
        sentence = f"{line} has the score {seen.score:g}: its turn comes too early or too late."
        yield finder.find("line_score", listing, sentence, "align_line")
    if needs.lock is not None and not seen.is_waiting:
        waiting = keys.waiting(needs.lock)
        sentence = f"{line} is not in {waiting}: it is not woken when the lock is freed."
        yield finder.find("waiting", waiting, sentence, "align_line")


def _unfit(
    needs: Needs, seen: LineSeen, alive: dict[str, dict[str, int]], finder: _Finder
) -> Iterator[Finding]:
    """Check whether a live listener could run the tasks of a line."""
    lack = lacking(needs, list(alive.values()))
    if not alive or lack is None:
        return
    need = f"need{'s' if seen.length == 1 else ''} {hints.amounts(needs.resources)}"
    sentence = f"{_tasks(seen)} of queue {finder.queue} {need} and cannot start, the first is {seen.first}: "
    sentence += _lacking(needs, lack, alive)
    key = keys.line(finder.queue, finder.name)
    yield finder.find("stuck", key, sentence, None, seen.first)


def _tasks(seen: LineSeen) -> str:
    return f"{seen.length} task{'' if seen.length == 1 else 's'}"


def _has_priority(name: str) -> bool:
    is_readable = name != DEFAULT and _PRIORITY.fullmatch(name) is not None
    return is_readable and abs(priority_of(name)) <= HIGHEST


def _lacking(needs: Needs, lack: str, alive: dict[str, dict[str, int]]) -> str:
    """Return what the listeners of a queue lack.

    lack: the name of a resource that none of them has enough of.
    """
    best = max(sorted(alive), key=lambda node: alive[node].get(lack, 0))
    most = alive[best].get(lack, 0)
    if most >= dict(needs.resources)[lack]:
        return "no listener of that queue has all of it."
    if lack.startswith(KEY):
        return "no listener of that queue has that key."
    if not most:
        return f"no listener of that queue has any {lack}."
    return f"the most {lack} that a listener of that queue has is {hints.amount(most)}, {best}."


def _settings(queue: str, seen: QueueSeen, has_work: bool) -> Iterator[Finding]:
    most, paused = seen.max_running, seen.paused

    def finding(code: str, sentence: str) -> Finding:
        return Finding(code, keys.settings(queue), None, queue, sentence, None, text=most)

    if known_count(most) == 0 and has_work:
        command = hints.of_queue("queue set", queue, "max-running=N")
        yield finding("stuck", f"queue {queue} has work, and may run 0 tasks: {command}")
    if paused is not None and seconds_of(paused) is None:
        command = hints.of_queue("queue resume", queue)
        sentence = f"queue {queue} is paused since {paused!r}, which is not a time: {command}"
        yield finding("settings", sentence)
    for name, text in seen.malformed.items():
        command = hints.of_queue("queue set", queue, f"{name}=")
        sentence = f"the {name} of queue {queue} is {text!r}, which has no effect: {command}"
        yield finding("settings", sentence)
