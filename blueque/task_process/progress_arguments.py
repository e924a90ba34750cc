"""Normalise the arguments of `task.progress`, and map progress of a stage to progress of the task.

Nothing here raises. Numbers out of range are clamped.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from blueque.spool.progress_file import Told
from blueque.text.format import one_line

_SHOWN = 40  # characters of a wrong value in a message


class Progress(NamedTuple):
    """Arguments that the progress file accepts.

    wrong: which arguments were changed, and why, in words; empty if none was.
    """

    done: float | None
    total: float | None
    unit: str
    text: str
    wrong: str


def normalise(done: Any, total: Any, unit: Any, text: Any) -> Progress:
    """Return valid progress for any arguments of `task.progress`.

    A text in place of a number, as in `progress("encoding")`, is text. Numbers that are not finite
    are left out.
    """
    wrong: list[str] = []
    words = [word for word in (done, total) if isinstance(word, str)]
    words.append("" if text is None else str(text))
    count, whole = _number(done, wrong), _number(total, wrong)
    if whole is not None and whole < 0:
        wrong.append(f"a total of {whole:g}")
        whole = None
    if count is not None and not 0 <= count <= (math.inf if whole is None else whole):
        wrong.append(f"{count:g} is negative" if count < 0 else f"{count:g} of {whole:g}")
        count = 0.0 if count < 0 else whole
    shown_unit = "" if unit is None else str(unit)
    return Progress(
        count, whole, shown_unit, " ".join(filter(None, words)), one_line("; ".join(wrong))
    )


class Stage:
    """A part of a task that reports its own progress.

    number, of: the position of the stage, such as 2 of 3; without them the stage only has a name.
    outer: the stage around this one.
    is_part: `number` and `of` are given and valid.
    wrong: why they are not valid; empty otherwise.
    """

    def __init__(self, name: str, number: Any, of: Any, outer: Stage | None) -> None:
        self.name: str = f"{outer.name}: {name}" if outer is not None else name
        self.wrong = ""
        # Start and size as shares of the whole task; None: unknown.
        self.place: tuple[float, float] | None = outer.place if outer is not None else None
        # the innermost stage with numbers: progress within this one counts for it
        self._counted: Stage = self if outer is None else outer._counted
        self._done = 0.0  # the last reported share of this stage
        self.is_part = False
        if number is None and of is None:
            return
        try:
            self.is_part = 1 <= number <= of < math.inf
        except TypeError:
            pass
        if self.is_part:
            self._counted = self
            begin, size = self.place or (0.0, 1.0)
            self.place = begin + size * (number - 1) / of, size / of
        else:
            self.wrong = one_line(f"not the number of a stage: {number!r} of {of!r}"[: _SHOWN * 2])

    def part(
        self, done: float | None, total: float | None, unit: str, text: str
    ) -> tuple[float | None, float | None, str, str]:
        """Return the progress of the task for progress of this stage: (done, total, unit, text).

        A count, such as 3/10 frames, becomes a part of the text.
        """
        if self.place is None:
            return done, total, unit, f"{self.name}: {text}" if text else self.name
        words = text
        if done is not None and total is not None:
            self._counted._done = done / total if total else 0.0
            words = str(Told(0, done, total, unit, text))
        elif (
            done is not None
            and not unit
            and 0 <= done <= 1
            and not (text and isinstance(done, int))
        ):
            self._counted._done = done
        elif done is not None:  # a count without a total
            words = str(Told(0, done, None, unit, text))
        begin, size = self.place
        share = begin + size * self._counted._done
        return min(float(share), 1.0), None, "", f"{self.name}: {words}" if words else self.name


def _number(value: Any, wrong: list[str]) -> float | None:
    """Return the value as a finite number; else None, with a note in `wrong`."""
    if value is None or isinstance(value, str):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # the last: an integer beyond a float
        number = math.nan
    if math.isfinite(number):
        return number
    wrong.append(f"{ascii(value)[:_SHOWN]} is not a finite number")
    return None
