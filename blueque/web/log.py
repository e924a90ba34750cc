"""The log of a task: which lines are shown, and where some are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from markupsafe import Markup

from blueque.model.log_line import OURS
from blueque.queries.task_log import LogLine
from blueque.report import svg
from blueque.web import ansi
from blueque.web.visit import Visit, at, iso

STREAMS = ("stdout", "stderr")


class Shown(NamedTuple):
    """The lines that a viewer has selected. lines: how many there are in all, by their numbers."""

    html: Markup
    attempts: Sequence[int]
    attempt: int | None
    lines: int
    matching: int


def choose(lines: Sequence[LogLine], visit: Visit, attempt: int | None) -> Shown:
    """Return the lines of one attempt that match the query: stream=, grep=."""
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
    """Return an item; a page has a thousand."""
    mark, title = ("!", ' title="stderr"') if line.stream == "stderr" else (" ", "")
    ours, class_ = ("b", ' class="ours"') if line.stream == OURS else ("", "")
    return (
        f'<li id="L{line.attempt}.{line.number}{ours}" data-attempt="{line.attempt}"'
        f' data-stream="{svg.text(line.stream)}"><span class="ln">{line.number:,}</span>'
        f'{_time(line.at // 1, visit.zone)}<span class="e"{title}>{mark}</span>'
        f"<span{class_}>{ansi.html(line.text)}</span></li>"
    )


@lru_cache(1000)
def _time(seconds: float, zone: str) -> Markup:
    when = at(seconds, zone)
    shown = "" if when is None else f"{when:%H:%M:%S}"
    return svg.tag("time", shown, datetime=iso(seconds))
