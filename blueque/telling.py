"""Telling: what somebody means who tells progress in a way that does not say it, for it is not to fail.

What is no number between 0 and its total is made one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from blueque.wording import one_line

_SHOWN = 40                                            # characters of what was told wrongly


class Meant(NamedTuple):
    """What is told, as `Gauge.tell` wants it. wrong: what was not as it should be, in words; empty if all was."""

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
        if isinstance(number, str):                    # progress(0.3, "encoding"), progress("encoding")
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


def _number(told: Any, wrong: list[str]) -> float | None:
    """Return it as a number, None if it is none: then say so in `wrong`, unless it is just not given."""
    try:
        number = None if told is None else float(told)
    except OverflowError:                              # a whole number without end
        return math.inf if told > 0 else -math.inf
    except (TypeError, ValueError):
        number = math.nan
    if number is not None and math.isnan(number):
        wrong.append(f"{ascii(told)[:_SHOWN]} is no number")
        return None
    return number
