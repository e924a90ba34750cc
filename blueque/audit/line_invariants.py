"""What must always be true of lines, locks and limits, as pure functions; see invariants.py."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from blueque.audit.observation import Finding, LineSeen, Picture
from blueque.model import keys
from blueque.model.lines import DEFAULT, HIGHEST, Needs, needs_of, parse_needs, priority_of
from blueque.model.states import Place
from blueque.queries.waiting_lines import lacking
from blueque.text import hints

MANY = 100  # lines that a listener looks at in one go

_PRIORITY = re.compile(r"(0|-?[1-9][0-9]{0,2})(,.+)?")


def judge_lines(picture: Picture) -> Iterator[Finding]:
    """Yield what is wrong with the lines of all queues and with how they are set."""
    living: dict[str, dict[str, dict[str, int]]] = {}
    for (queue, node), standing in picture.listeners.items():
        if standing.state == "alive":
            living.setdefault(queue, {})[node] = dict(
                (parse_needs(standing.resources) or Needs()).resources
            )
    work = {queue for queue, length in picture.in_line.items() if length}
    empty: Counter[str] = Counter()
    for (queue, name), seen in picture.lines.items():
        work |= {queue} if seen.length else set()
        empty[queue] += seen.score is not None and not seen.length
        key = keys.line(queue, name)
        if not {key, keys.lines(queue)} & picture.oddities.keys():
            yield from _line(queue, name, seen, living.get(queue, {}))
    for queue, number in empty.items():
        # A few are no matter: a listener drops them when it looks, and until then they cost
        # nothing.
        if number > MANY:
            sentence = (
                f"{keys.lines(queue)} has {number} lines of queue {queue} in which nobody stands."
            )
            yield Finding("empty_line", keys.lines(queue), None, queue, sentence, "drop_line")
    for queue, (max_concurrency, paused) in picture.settings.items():
        yield from _settings(queue, max_concurrency, paused, queue in work)


def judge_locks(picture: Picture) -> Iterator[Finding]:
    """Yield the locks that more tasks hold than any of them allows; `judge_task` has looked at all
    of these.
    """
    for lock, count in picture.holders.items():
        limit = picture.limits[lock]
        if count > limit:
            sentence = (
                f"{count} tasks hold lock {lock}, which {limit} may: those that run now run on."
            )
            place = Place("lock", "", line=lock)
            yield Finding("overfull", place.key, None, None, sentence, None, text=lock, place=place)


def _line(
    queue: str, name: str, seen: LineSeen, living: dict[str, dict[str, int]]
) -> Iterator[Finding]:
    key = keys.line(queue, name)
    place = Place("line", queue, line=name)
    what = f"line {name} of queue {queue}"

    def found(
        code: str, key: str, sentence: str, fix: str | None, task: str | None = None
    ) -> Finding:
        return Finding(code, key, task, queue, sentence, fix, text=name, place=place)

    needs = needs_of(name)
    if (
        needs is None
        or name == DEFAULT
        or not _PRIORITY.fullmatch(name)
        or abs(priority_of(name)) > HIGHEST
    ):
        sentence = f"{what} has a name that makes no sense"
        if seen.length:
            yield found(
                "bad_line", key, f"{sentence}, and nobody takes its {seen.length} tasks.", None
            )
        elif seen.score is not None:
            yield found("bad_line", keys.lines(queue), f"{sentence}.", "drop_line")
        return
    if not seen.length:
        if seen.score is None and seen.is_waited:
            sentence = f"nobody stands in {what} any more, and it is not in {keys.lines(queue)}."
            yield found("empty_line", keys.waiting(needs.lock or ""), sentence, "drop_line")
        return
    if seen.score is None:
        sentence = f"{what} is not in {keys.lines(queue)}: nobody looks there, and {_tasks(seen.length)} wait."
        yield found("hidden_line", keys.lines(queue), sentence, "note_line")
    elif seen.score != priority_of(name):
        sentence = f"{what} has the score {seen.score:g}: it has its turn too early or too late."
        yield found("line_score", keys.lines(queue), sentence, "note_line")
    if seen.score is not None and needs.lock is not None and not seen.is_waited:
        sentence = f"{what} is not in {keys.waiting(needs.lock)}: whoever lets go of the lock does not wake it."
        yield found("waiting", keys.waiting(needs.lock), sentence, "note_line")
    lack = lacking(needs, list(living.values()))
    if living and lack is not None:
        verb = "needs" if seen.length == 1 else "need"
        sentence = f"{_tasks(seen.length)} of queue {queue} {verb} {hints.amounts(needs.resources)} and can never start,"
        sentence += f" the first is {seen.first}: {_lacking(needs, lack, living)}"
        yield found("stuck", key, sentence, None, seen.first)


def _lacking(needs: Needs, lack: str, living: dict[str, dict[str, int]]) -> str:
    """Return what the listeners of a queue have not; lack: the name of a resource that one of them
    has too little of.
    """
    best = max(sorted(living), key=lambda node: living[node].get(lack, 0))
    most = living[best].get(lack, 0)
    if most >= dict(needs.resources)[lack]:
        return "no listener of that queue has all of it."
    if not most:
        return f"no listener of that queue has any {lack}."
    return f"the most {lack} that a listener of that queue has is {hints.amount(most)}, {best}."


def _settings(
    queue: str, max_concurrency: str | None, paused: str | None, has_work: bool
) -> Iterator[Finding]:
    key = keys.settings(queue)

    def found(code: str, sentence: str) -> Finding:
        return Finding(code, key, None, queue, sentence, None, text=max_concurrency)

    if max_concurrency is not None and not max_concurrency.isdecimal():
        yield found(
            "settings",
            f"the max_concurrency of queue {queue} is {max_concurrency!r}, no number: it has no effect.",
        )
    elif max_concurrency is not None and int(max_concurrency) == 0 and has_work:
        command = hints.of_queue("limit", queue, "N")
        yield found("stuck", f"queue {queue} has work, and may run 0 tasks: {command}, or none.")
    if paused is not None and not _is_time(paused):
        command = hints.of_queue("resume", queue)
        yield found(
            "settings", f"queue {queue} is paused since {paused!r}, which is no time: {command}"
        )


def _is_time(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"
