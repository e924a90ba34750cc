"""What must be true of a schedule: each planned time up to the last that was decided has come to
exactly one task or one reason, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from oracle import Planned, State

from blueque.errors import InvalidInput
from blueque.model.ids import id_of_occurrence
from blueque.model.recurrence import Rule, planned_times
from blueque.model.schedule import OPEN, Definition, Occurrence

DECIDED = ("made", "skipped", "missed")
MOST = 1_000_000  # planned times at which anyone looks


def wrong_history(
    rule: Rule, begin: int, record: Mapping[str, str], history: Sequence[Occurrence], name: str
) -> str | None:
    """Return what is wrong with the list of a schedule, the oldest first; None: nothing is.

    rule, begin: all its planned times from `begin` on were once undecided.
    """
    last = int(record["last"])
    wanted = planned_times(rule, begin - 1, last, MOST)
    entries = [one for one in history if one.what in DECIDED]
    decided = [moment for one in entries for moment in moments(rule, one)]
    if decided != wanted:
        return _difference(decided, wanted)
    counts = Counter({what: int(record.get(what, 0)) for what in DECIDED})
    listed = Counter(dict.fromkeys(DECIDED, 0))
    for one in entries:
        listed[one.what] += one.times or 1
        if one.what == "made" and one.task != id_of_occurrence(name, one.planned):
            return f"{one.planned} came to task {one.task}, which is not its own"
        if one.what != "made" and one.why is None:
            return f"{one.planned} was {one.what} without a reason"
        if one.planned > one.at:
            return f"{one.planned} was decided {one.planned - one.at:g} s early"
    return None if listed == counts else f"{listed} are listed, and {counts} counted"


def wrong_schedules(
    state: State, at_first: Mapping[str, Planned], tolerated: frozenset[str]
) -> str | None:
    """Return which schedule is not as it must be after each EXEC.

    at_first: as the setup has left them: no time of a changed rule comes in a run.
    tolerated: "deleted": tasks may be gone; "forgotten": Redis may know of tasks, and not of what they
        came; "beside": tasks may be open beside each other.
    """
    for name, planned in state.schedules.items():
        wrong = _wrong_record(planned)
        first = at_first.get(name)
        # One that was removed and made again has come to nothing yet.
        if wrong is None and first and _made(first) == _made(planned):
            wrong = _wrong_past(state, name, planned, first, tolerated)
        if wrong is not None:
            return f"schedule {name}: {wrong}"
    return None


def _made(planned: Planned) -> str | None:
    return planned.record.get("created")


def _wrong_record(planned: Planned) -> str | None:
    """Return what is wrong with the record of a schedule and its score."""
    record = planned.record
    if not record:
        return f"it has no record, and {planned.history} and the score {planned.score}"
    if planned.score is None:
        return "it is not among the schedules"
    is_over = "paused" in record or "planned" not in record
    wanted = float("inf") if is_over else float(record["at"])
    if planned.score != wanted:
        return f"its score is {planned.score}, and should be {wanted}"
    try:
        definition = Definition.of(record)
    except InvalidInput as error:
        return str(error)
    following = definition.rule.next_after(int(record["last"]))
    if str(following) != record.get("planned"):
        return f"{record.get('planned')} is next, and should be {following}"
    return None


def _wrong_past(
    state: State, name: str, planned: Planned, first: Planned, tolerated: frozenset[str]
) -> str | None:
    """Return what is wrong with what has come of the planned times since the schedule was made."""
    rule, begin = Definition.of(first.record).rule, int(float(first.record["created"])) + 1
    if (wrong := wrong_history(rule, begin, planned.record, planned.history, name)) is not None:
        return wrong
    made = {one.task for one in planned.history if one.what in ("made", "triggered")}
    there = {task for task, its in state.tasks.items() if its.get("schedule") == name}
    if there - made and "forgotten" not in tolerated:
        return f"{sorted(there - made)} are of no planned time"
    if made - there and "deleted" not in tolerated:
        return f"{made - there} are not there"
    own = [task for task in there if state.tasks[task].get("status") in OPEN]
    beside = [task for task in own if "cancel" not in state.tasks[task]]
    most = {"allow": len(beside), "queue": 2}.get(planned.record["overlap"], 1)
    if len(beside) > most and "beside" not in tolerated:
        return f"{beside} are open at the same time"
    return None


def moments(rule: Rule, one: Occurrence) -> list[int]:
    """Return the planned times for which an occurrence stands."""
    return planned_times(rule, one.planned - 1, one.until or one.planned, MOST)


def _difference(decided: Iterable[int], wanted: Sequence[int]) -> str:
    counts = Counter(decided)
    twice = [moment for moment, count in counts.items() if count > 1]
    none = [moment for moment in wanted if moment not in counts]
    other = [moment for moment in counts if moment not in {*wanted}]
    return (
        f"came to two things: {twice[:5]}; to nothing: {none[:5]}; not planned, or not decided: "
        f"{other[:5]}; or not in order"
    )
