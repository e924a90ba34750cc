"""Telling: what somebody means by the progress that he tells: in a stage of a task, or in a way
that makes no sense.

It is not to fail. What is no number between 0 and its total is made one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from blueque.spool.progress_file import Told
from blueque.text.format import one_line

_SHOWN = 40  # characters of what was told wrongly


class Meant(NamedTuple):
    """What is told, as `Gauge.tell` wants it. wrong: what was not as it should be, in words; empty
    if all was.
    """

    done: float | None
    total: float | None
    unit: str
    text: str
    wrong: str


def meant(done: Any, total: Any, unit: Any, text: Any, others: Mapping[str, Any]) -> Meant:
    """Return what somebody means by these arguments of `task.progress`, whatever they are.

    others: keywords that it does not know; `message` is the text.
    """
    wrong = [f"no such argument: {name}" for name in others if name != "message"]
    words = [text, others.get("message")]
    numbers: list[float | None] = []
    for number in (total, done):
        if isinstance(number, str):  # progress(0.3, "encoding"), progress("encoding")
            words.insert(0, number)
            number = None
        numbers.insert(0, _number(number, wrong))
    share, whole = numbers
    if whole is not None and not 0 <= whole < math.inf:
        wrong.append(f"a total of {whole:g}")
        whole = None
    if whole == 0 and share:
        whole = None
    if share is not None and share < 0:
        wrong.append(f"{share:g} is less than nothing")
        share = 0.0
    elif share is not None and share > (math.inf if whole is None else whole):
        wrong.append(f"{share:g} of {whole:g}")
        share = whole
    if share == math.inf:
        wrong.append("an infinity")
        share = whole
    said = " ".join(str(word) for word in words if word is not None and word != "")
    return Meant(share, whole, "" if unit is None else str(unit), said, one_line("; ".join(wrong)))


class Stage:
    """A part of a task that tells its own progress.

    number, of: which it is, of how many; else it has a name only. outer: the stage that it is a
        part of.
    is_part: they are sound. wrong: why the numbers say nothing; empty if they do, or there are
        none.
    """

    def __init__(self, name: str, number: Any, of: Any, outer: Stage | None) -> None:
        self.name: str = f"{outer.name}: {name}" if outer is not None else name
        self.wrong = ""
        # Where it begins in the whole, and how much of that it is; None: nobody knows.
        self.place: tuple[float, float] | None = outer.place if outer is not None else None
        # the one whose part is told within this one
        self._counts: Stage = self if outer is None else outer._counts
        self._done = 0.0  # of it, as of the last time that it was told
        self.is_part = False
        if number is None and of is None:
            return
        try:
            self.is_part = 1 <= number <= of < math.inf
        except TypeError:
            pass
        if self.is_part:
            self._counts = self
            begin, size = self.place or (0.0, 1.0)
            self.place = begin + size * (number - 1) / of, size / of
        else:
            self.wrong = one_line(f"no number of a stage: {number!r} of {of!r}"[: _SHOWN * 2])

    def part(
        self, done: float | None, total: float | None, unit: str, text: str
    ) -> tuple[float | None, float | None, str, str]:
        """Return what is to be told of the whole task, for what is told of the stage. A count is a
        part of the text then.
        """
        if self.place is None:
            return done, total, unit, f"{self.name}: {text}" if text else self.name
        words = text
        if done is not None and total is not None:
            self._counts._done = done / total if total else 0.0
            words = str(Told(0, done, total, unit, text))
        elif (
            done is not None
            and not unit
            and 0 <= done <= 1
            and not (text and isinstance(done, int))
        ):
            self._counts._done = done
        elif done is not None:  # of how many, nobody knows
            words = str(Told(0, done, None, unit, text))
        begin, size = self.place
        share = begin + size * self._counts._done
        return min(float(share), 1.0), None, "", f"{self.name}: {words}" if words else self.name


def _number(told: Any, wrong: list[str]) -> float | None:
    """Return it as a number, None if it is none: then say so in `wrong`, unless it is just not
    given.
    """
    try:
        number = None if told is None else float(told)
    except OverflowError:  # a whole number without end
        return math.inf if told > 0 else -math.inf
    except (TypeError, ValueError):
        number = math.nan
    if number is not None and math.isnan(number):
        wrong.append(f"{ascii(told)[:_SHOWN]} is no number")
        return None
    return number
