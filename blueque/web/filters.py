"""The form that selects tasks: from the query of an address, and to the equivalent command."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from blueque.errors import InvalidInput
from blueque.faces.task_list import usual_states
from blueque.model.units import parse_duration
from blueque.queries.listing import STATUSES
from blueque.queries.selection import Selection
from blueque.text.moments import parse_time
from blueque.web.visit import Visit, iso, zone_of

LIMITS = (50, 200, 1000)
RAN = "-ran"  # the order by run time, as the command has it
_MANY = {
    "key": "key",
    "group": "group",
    "error": "error_type",
    "tag": "tags",
    "schedule": "schedule",
}


class Filter(NamedTuple):
    """The selection of a viewer. mistake: what is wrong with it, in a sentence."""

    queue: str
    states: Sequence[str]
    node: str
    selection: Selection
    limit: int
    mistake: str = ""
    is_by_run: bool = False  # those that have run the longest come first

    @property
    def shown(self) -> Sequence[str]:
        """The states to list."""
        return self.states or usual_states(self.selection, self.node)


def filter_of(visit: Visit) -> Filter:
    """Return the selection in the query of a visit."""
    queue, node = visit.one("queue").strip(), visit.one("node").strip()
    states = tuple(state for state in visit.query.get("state", ()) if state in STATUSES)
    limit = visit.number("limit", LIMITS[0], 1, LIMITS[-1])
    many = {
        field: tuple(value for value in visit.query.get(name, ()) if value)
        for name, field in _MANY.items()
    }
    mistakes: list[str] = []
    times = {name: _time(visit, name, mistakes) for name in ("since", "until")}
    selection = Selection(
        **many, text=visit.one("text").strip() or None, since=times["since"], until=times["until"]
    )
    is_by_run = visit.one("sort") == RAN
    return Filter(queue, states, node, selection, limit, " ".join(mistakes), is_by_run)


def command_of(visit: Visit, verb: str = "ls", among: Collection[str] = STATUSES) -> str:
    """Return the command that selects the same tasks. among: the states that it may name."""
    words = ["blueque", verb]
    is_of_all = (
        verb != "ls" and not filter_of(visit).selection.is_any
    )  # which a verb wants to be told
    if queue := visit.one("queue").strip() or ("*" if is_of_all else ""):
        words += ["-q", queue]
    if states := [state for state in visit.query.get("state", ()) if state in among]:
        words += ["--state", ",".join(states)]
    if node := visit.one("node").strip():
        words += ["--node", node]
    for name, field in _MANY.items():
        option = "--tag" if field == "tags" else f"--{field.replace('_', '-')}"
        for value in visit.query.get(name, ()):
            words += [option, value] if value else []
    if text := visit.one("text").strip():
        words += ["--text", text]
    for name in ("since", "until"):
        if value := visit.one(name).strip():
            is_age, time = _time(visit, name, []) or (True, 0.0)
            # A terminal has not the zone of the viewer.
            words += [f"--{name}", value if is_age else iso(time) or value]
    if verb == "ls" and visit.one("sort") == RAN:
        words += ["--sort", RAN]
    return shlex.join(words)


def times_of(visit: Visit) -> tuple[float | None, float | None, str]:
    """Return the times between which a visit wants events, and what is wrong with them."""
    mistakes: list[str] = []
    since, until = (_time(visit, name, mistakes) for name in ("since", "until"))

    def at(time: tuple[bool, float] | None) -> float | None:
        return None if time is None else visit.now - time[1] if time[0] else time[1]

    return at(since), at(until), " ".join(mistakes)


def _time(visit: Visit, name: str, mistakes: list[str]) -> tuple[bool, float] | None:
    """Return an age, or a time in the zone of the viewer, in the form of a Selection."""
    text = visit.one(name).strip()
    if not text:
        return None
    with suppress(InvalidInput):
        return True, parse_duration(text)
    try:
        return False, parse_time(text, visit.now, is_ahead=False, zone=zone_of(visit.zone))
    except InvalidInput as error:
        mistakes.append(f"{name}: {error}.")
        return None
