"""Say which schedules need attention. docs/troubleshooting.md has the rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.audit.server_check import ahead
from blueque.text.format import count, span

if TYPE_CHECKING:
    from blueque.queries.schedules import Watched

OVERDUE = 60.0  # seconds
MANY = 3  # occurrences or tasks in a row


class Judgement(NamedTuple):
    """Why schedules need attention.

    says: what is wrong with one; None: nothing is. others: the same for several, after "2 more".
    verb: of the command about one.
    """

    code: str
    says: Callable[[Watched, float, Collection[str]], str | None]
    others: str
    verb: str = "show"


def judged(
    schedules: Sequence[Watched], now: float, served: Collection[str]
) -> Iterator[tuple[Judgement, dict[str, str]]]:
    """Yield what is wrong, and with which schedules: a sentence for each.

    served: the queues with a listener that makes the tasks of their schedules.
    """
    for judgement in _JUDGEMENTS:
        sentences = {each.name: judgement.says(each, now, served) for each in schedules}
        found = {name: sentence for name, sentence in sentences.items() if sentence is not None}
        if found:
            yield judgement, found


def _overdue(schedule: Watched, now: float, served: Collection[str]) -> str | None:
    if schedule.at is None or schedule.paused is not None:
        return None
    late = now - schedule.at
    if late <= OVERDUE:
        return None
    why = "no program makes its task"
    if schedule.queue not in served:
        why = f"no listener serves queue {schedule.queue}, and no scheduler makes its task"
    return f"overdue by {span(late)}: {why}"


def _failing(schedule: Watched, now: float, served: Collection[str]) -> str | None:
    if schedule.failures < MANY or schedule.paused is not None:
        return None
    return f"its last {count(schedule.failures, 'task')} have failed"


def _left_out(schedule: Watched, now: float, served: Collection[str]) -> str | None:
    if schedule.left_out < MANY or schedule.paused is not None:
        return None
    more = " or more" if schedule.is_more else ""
    return f"its last {schedule.left_out}{more} planned times made no task"


_JUDGEMENTS = (
    Judgement("schedule_overdue", _overdue, "overdue"),
    Judgement("schedule_ahead", ahead, "with times too far ahead"),
    Judgement("schedule_failing", _failing, "with tasks that fail", "history"),
    Judgement("schedule_left_out", _left_out, "that make no tasks", "history"),
)
