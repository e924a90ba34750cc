"""The recheck: the second look of an audit, at what was suspect in the first, all at one instant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blueque.audit import run_scan
from blueque.audit.observation import Finding, Hash, Picture
from blueque.audit.reads import (
    BATCH,
    Question,
    Rolls,
    about_line,
    about_listeners,
    about_settings,
    about_task,
    ask_at_once,
    conclude,
    note,
    note_waiting,
    readable,
)
from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.states import LISTS, TYPES, Entry, Place, home


def look_again(
    redis: Redis, first: Picture, findings: Sequence[Finding]
) -> tuple[Picture, dict[str, Hash]]:
    """Look once more at what the findings are about, at one instant."""
    picture, tasks = Picture(oddities=dict(first.oddities)), dict[str, Hash]()
    suspects = {finding.task: finding.seen for finding in findings if finding.task is not None}
    # Before the instant, for it may take long: who is staged now has been published by then, or is
    # staged still.
    staged = run_scan.chunks_of(redis, suspects)
    entries = {
        task: _candidates(first, task, seen or Hash()) | staged.get(task, set())
        for task, seen in suspects.items()
    }
    places = {entry.place for some in entries.values() for entry in some}
    queues = {finding.queue for finding in findings if finding.queue is not None}
    queues |= {place.queue for place in places if place.queue}  # a lock is of none, and a chunk
    rolls = {queue: Rolls() for queue in queues}
    pairs = {pair for pair in first.listeners if pair[0] in queues}
    for finding in findings:
        nodes = (
            finding.node,
            *((finding.seen.node, finding.seen.claimant) if finding.seen else ()),
        )
        pairs |= {
            (finding.queue, node)
            for node in nodes
            if node is not None and finding.queue is not None
        }
    questions = [
        question
        for queue in queues
        for question in _about_queue(picture, queue, rolls[queue], suspects)
    ]
    questions += about_listeners(picture, rolls, sorted(pairs), suspects)
    questions += [
        question for finding in findings for question in _about_line(picture, first, finding)
    ]
    for task in suspects.keys() | _holders(first, findings):
        questions += about_task(task, tasks)
    for task, some in entries.items():
        questions += [question for entry in some for question in _about_entry(picture, task, entry)]
    kinds = [question for finding in findings for question in _about_key(picture, finding)]
    ask_at_once(redis, [*readable(questions, first), *kinds])
    conclude(picture, rolls)
    return picture, tasks


def _about_queue(picture: Picture, queue: str, roll: Rolls, only: Iterable[str]) -> list[Question]:
    def take_score(score: str | None) -> None:
        picture.scores[queue] = None if score is None else float(score)

    return [
        (("ZSCORE", keys.QUEUES, queue), take_score),
        (("SMEMBERS", keys.listeners(queue)), roll.members.update),
        (("ZRANGE", keys.nodes(queue), 0, -1), roll.noted.update),
        (
            ("SMEMBERS", keys.started(queue)),
            lambda texts: note(picture, Place("started", queue), texts, roll, only),
        ),
        (
            ("ZRANGE", keys.wake(queue), 0, -1),
            lambda texts: note(picture, Place("wake", queue), texts, roll),
        ),
        *about_settings(picture, queue),
    ]


def _about_line(picture: Picture, first: Picture, finding: Finding) -> list[Question]:
    place, queue = finding.place, finding.queue or ""
    if place is None and finding.key in (keys.settings(queue), keys.lines(queue)):
        # Is there still work? And do they still stand empty?
        is_about_work = finding.key == keys.settings(queue)
        some = [
            line
            for (its, line), seen in first.lines.items()
            if its == queue and bool(seen.length) == is_about_work
        ]
        return [question for line in some[:BATCH] for question in about_line(picture, queue, line)]
    if place is None:
        return []
    if place.kind == "line":
        return about_line(picture, place.queue, place.line)
    if place.kind == "waiting":
        return [
            (
                ("SMEMBERS", place.key),
                lambda members: list(note_waiting(picture, place.line, members)),
            )
        ]
    return []


def _holders(first: Picture, findings: Sequence[Finding]) -> set[str]:
    """Return who held the locks that too many hold: what each of them allows has to be known once
    more.
    """
    places = {finding.place for finding in findings if finding.code == "overfull"}
    if not places:
        return set()
    return {
        task
        for task, entries in first.entries.items()
        if places & {entry.place for entry in entries}
    }


def _candidates(first: Picture, task: str, seen: Hash) -> set[Entry]:
    """Return where the task was or should have been, without the places that are read whole."""
    entries = set(first.entries.get(task, ()))
    if seen.queue is not None:
        entries |= {Entry(Place("tasks", seen.queue), task)}
        if seen.status in TYPES:
            entries |= set(home(task, seen.whereabouts))
    return {entry for entry in entries if entry.place.kind not in ("reserved", "started")}


def _about_entry(picture: Picture, task: str, entry: Entry) -> list[Question]:
    place, text = entry
    if place.kind in LISTS:
        return [
            (
                ("LPOS", place.key, text, "COUNT", 0),
                lambda found: picture.note(task, place, text, len(found or ())),
            )
        ]
    if TYPES[place.kind] == "set":
        return [
            (("SISMEMBER", place.key, text), lambda is_in: picture.note(task, place, text, is_in))
        ]
    return [
        (
            ("ZSCORE", place.key, text),
            lambda score: picture.note(task, place, text, int(score is not None)),
        )
    ]


def _about_key(picture: Picture, finding: Finding) -> list[Question]:
    key = finding.key
    if key not in picture.oddities:
        return []
    if finding.code == "left_behind":  # its task may have been made while we looked
        return [
            (
                ("EXISTS", keys.task(finding.task or "")),
                lambda is_there: is_there and picture.oddities.pop(key),
            )
        ]
    return [
        (("TYPE", key), lambda kind: None if kind == finding.text else picture.oddities.pop(key))
    ]
