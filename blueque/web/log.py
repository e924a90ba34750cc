"""The log of a task: which lines are shown, and where some are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from blueque.model.log_line import OURS
from blueque.queries.task_log import LogLine
from blueque.report import svg
from blueque.web import ansi
from blueque.web.visit import Visit, iso

STREAMS = ("stdout", "stderr")


class Shown(NamedTuple):
    """The lines that a viewer has chosen. lines: how many there are in all, as their numbers say."""

    html: Markup
    attempts: Sequence[int]
    attempt: int | None
    lines: int
    matching: int


def choose(lines: Sequence[LogLine], visit: Visit, attempt: int | None) -> Shown:
    """Return the lines of one attempt that fit the query: stream=, grep=."""
    attempts = sorted({line.attempt for line in lines} | ({attempt} if attempt else set()))
    wanted = visit.number("attempt", attempt or 0) or attempt
    of_attempt = [line for line in lines if line.attempt == wanted]
    stream, word = visit.one("stream"), visit.one("grep")
    chosen = [
        line
        for line in of_attempt
        if (stream not in STREAMS or line.stream in (stream, OURS))
        and (not word or word.lower() in ansi.plain(line.text).lower())
    ]
    is_filtered = stream in STREAMS or bool(word)
    html = "".join(_with_gaps(chosen, visit, is_filtered))
    number = max((line.number for line in of_attempt), default=0)
    return Shown(Markup(html), attempts, wanted, number, len(chosen))


def lines_html(lines: Iterable[LogLine], visit: Visit) -> str:
    """Return the items of a list of lines."""
    return "".join(_line(line, visit) for line in lines)


def plain_text(lines: Iterable[LogLine]) -> Iterator[str]:
    """Yield the lines as plain text."""
    for line in lines:
        yield f"{ansi.plain(line.text)}\n"


def _with_gaps(lines: Sequence[LogLine], visit: Visit, is_filtered: bool) -> Iterator[str]:
    last = 0
    for line in lines:
        if line.number > last + 1 and not is_filtered and line.stream != OURS:
            sentence = f"Lines {last + 1:,} to {line.number - 1:,} are no longer in Redis. "
            sentence += "The host of the task has the whole log: "
            command = svg.tag("code", f"blueque logs --all {line.task[:8]}")
            yield svg.tag("li", sentence, command, class_="gap")
        last = max(last, line.number)
        yield _line(line, visit)


def _line(line: LogLine, visit: Visit) -> str:
    when = visit.at(line.at)
    is_error = line.stream == "stderr"
    return svg.tag(
        "li",
        svg.tag("span", f"{line.number:,}", class_="ln"),
        svg.tag("time", "" if when is None else f"{when:%H:%M:%S}", datetime=iso(line.at)),
        svg.tag("span", "!" if is_error else " ", class_="e", title="stderr" if is_error else None),
        svg.tag("span", ansi.html(line.text), class_="ours" if line.stream == OURS else None),
        id=f"L{line.attempt}.{line.number}{'b' if line.stream == OURS else ''}",
        data_attempt=line.attempt,
        data_stream=line.stream,
    )
