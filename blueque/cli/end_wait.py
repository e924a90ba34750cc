"""Share `--wait [DURATION]` of the verbs that have a listener end a running task: the option, and
the wait for the ends.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import Outcome, act_on, print_outcome
from blueque.cli.printing import count
from blueque.cli.values import DURATION
from blueque.errors import InvalidInput
from blueque.model import units

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two reads


class WithWait(click.Command):
    """A command whose --wait may have a value. A word that is a duration is never an id."""

    def parse_args(self, ctx: click.Context, args: MutableSequence[str]) -> list[str]:
        own, words = [], list(args)
        while words:
            word = words.pop(0)
            if word == "--":
                own += [word, *words]
                break
            if word == "--wait":
                word = f"--wait={words.pop(0) if words and _is_duration(words[0]) else ''}"
            own.append(word)
        return super().parse_args(ctx, own)


def _to_seconds(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    if value is None:
        return None
    return DURATION.convert(value, parameter, context) if value else math.inf


wait_option = click.option(
    "--wait",
    callback=_to_seconds,
    metavar="[DURATION]",
    help="Wait until they have ended; after this time the exit code is 124.",
)


def ends_of(
    inspector: Inspector,
    going: str,
    judge: Callable[[Task], Outcome | None],
    seconds: float | None,
    as_json: bool,
) -> Callable[[Sequence[Task], Callable[[Task], str]], list[Outcome]] | None:
    """Return a function that changes tasks as `act_on`, waits until all have ended, and returns the
    results.

    going: the status of those that have not ended, such as cancelling. judge: returns the result
        for a task; None: it has not ended yet. seconds: None: do not wait.
    """
    if seconds is None:
        return None
    return lambda tasks, action: _act_and_wait(
        inspector, tasks, action, going, judge, seconds, as_json
    )


def is_late(outcomes: Sequence[Outcome], going: str, seconds: float | None) -> bool:
    """Return whether some have not ended although the program waited for them."""
    return seconds is not None and any(outcome.status == going for outcome in outcomes)


def _act_and_wait(
    inspector: Inspector,
    tasks: Sequence[Task],
    action: Callable[[Task], str],
    going: str,
    judge: Callable[[Task], Outcome | None],
    seconds: float,
    as_json: bool,
) -> list[Outcome]:
    outcomes = act_on(tasks, action, as_json, going=going)
    settled = {outcome.id: outcome for outcome in outcomes}
    waiting = [outcome.id for outcome in outcomes if outcome.status == going]
    try:
        for outcome in _wait_for(inspector, waiting, seconds, judge):
            settled[outcome.id] = outcome
            if not as_json:
                print_outcome(outcome)
    except KeyboardInterrupt:
        done = going.removesuffix("ing") + "ed"
        printing.talk(f"No longer waiting; the tasks are still being {done}: blueque show ID")
        raise
    left = [outcome for outcome in settled.values() if outcome.status == going]
    for outcome in left if not as_json else ():
        print_outcome(outcome)
    if left:
        see = f"blueque show {printing.short_id(left[0].id)}"
        printing.talk(
            f"{count(len(left), 'task')} had not ended after {printing.span(seconds)}; see: {see}"
        )
    return list(settled.values())


def _wait_for(
    inspector: Inspector,
    ids: Sequence[str],
    seconds: float,
    judge: Callable[[Task], Outcome | None],
) -> Iterator[Outcome]:
    """Yield the result of each task once it has ended."""
    waiting, pause = list(ids), FIRST_PAUSE
    deadline = time.monotonic() + seconds
    while waiting:
        for task in inspector.tasks(waiting):
            if (outcome := judge(task)) is not None:
                waiting.remove(task.id)
                yield outcome
        left = deadline - time.monotonic()
        if not waiting or left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(1.5 * pause, LONGEST_PAUSE)


def _is_duration(word: str) -> bool:
    """Return whether a word is a duration. Ends the program if it may also be the beginning of an id."""
    try:
        units.parse_duration(word)
    except InvalidInput:
        return False
    if re.fullmatch("[0-9a-f]{8,}", word):
        raise click.UsageError(
            f"{word} may be a task or the time to wait: put the task before --wait, or write --wait={word}"
        )
    return True
