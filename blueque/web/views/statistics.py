"""How many tasks ended how, and how long they took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from blueque.queries.statistics import Numbers, Statistics, total
from blueque.report import svg
from blueque.report.scales import Durations
from blueque.web.views.overview import spark
from blueque.web.views.tasks import matching
from blueque.web.visit import Page, Visit

SPANS = {"7d": 7, "14d": 14, "30d": 30, "90d": 90}
MOST_QUEUES = 50  # those with the most work
HEIGHT = 120  # pixels of a picture


def statistics(visit: Visit) -> Page:
    """Return the statistics of all queues together, and of each."""
    chosen = visit.one("span") if visit.one("span") in SPANS else "14d"
    names = matching(visit.one("queue").strip(), visit)
    found = visit.reader.statistics(names[:1000], SPANS[chosen])
    ordered = sorted(found.values(), key=lambda one: -_work(one))
    days = _by_day(ordered)
    context = {
        "queues": [(one, spark(one)) for one in ordered[:MOST_QUEUES] if _ended(one.total)],
        "all": total(one.total for one in ordered),
        "days": [*days.items()],
        "picture": by_day(days),
        "durations": durations(total(one.total for one in ordered)),
        "length": chosen,
        "spans": [*SPANS],
        "more": max(len(ordered) - MOST_QUEUES, 0),
        "is_cut": len(names) > 1000,
    }
    return Page("statistics.html", context)


def by_day(days: Mapping[str, Numbers]) -> Markup:
    """Return a picture of the tasks that ended on each day."""
    most = max((_ended(day) for day in days.values()), default=0) or 1
    width = 1 / max(len(days), 1)
    parts = [svg.tag("line", class_="gl", x1="0", x2="100%", y1=HEIGHT, y2=HEIGHT)]
    every = max(len(days) // 7, 1)
    for number, (name, day) in enumerate(days.items()):
        parts += _stack(name, day, (number + 0.1) * width, 0.8 * width, most)
        if number % every == 0:
            place = svg.percent((number + 0.5) * width)
            parts.append(svg.tag("text", name[5:], class_="tick mid", x=place, y=HEIGHT + 14))
    says = f"at most {most:,} tasks on one day"
    parts.append(svg.tag("text", f"{most:,}", class_="tick", x=0, y=9))
    return Markup(
        svg.tag("svg", *parts, class_="days", height=HEIGHT + 18, role="img", aria_label=says)
    )


def _stack(name: str, day: Numbers, x: float, width: float, most: int) -> Iterator[str]:
    """Yield the parts of the bar of one day, from the bottom."""
    says = f"{name}: {day.complete:,} done, {day.failed:,} failed, {day.cancelled:,} cancelled"
    base = float(HEIGHT)
    kinds = {"complete": day.complete, "failed": day.failed, "cancelled": day.cancelled}
    for kind, number in kinds.items():
        tall = (HEIGHT - 14) * number / most
        base -= tall
        if number:
            yield svg.rect(x, base, width, max(tall, 1), f"r {kind}", says)


def durations(numbers: Numbers) -> Markup | None:
    """Return a picture of how long tasks ran, on a logarithmic axis."""
    ran = numbers.running
    spread = [ran.quantile(share) for share in (0.5, 0.9, 0.99)]
    known = [value for value in spread if value]
    if ran.counted < 5 or not known:
        return None
    scale = Durations([min(known) / 10, (ran.longest or max(known)) * 1.1])
    marks = []
    for tick in scale.ticks():
        marks.append(svg.line(tick.at, 0, tick.at, 40, "gl"))
        marks.append(svg.label(tick.at, 54, tick.label, "mid"))
    names = ("half", "9 of 10", "99 of 100")
    for name, value in zip(names, spread, strict=True):
        if value:
            at = svg.percent(scale.at(value))
            marks.append(svg.tag("line", class_="now", x1=at, x2=at, y1=14, y2=40))
            marks.append(svg.tag("text", name, class_="tick mid", x=at, y=10))
    says = "; ".join(
        f"{name} up to {value:.1f} s" for name, value in zip(names, spread, strict=True) if value
    )
    return Markup(svg.tag("svg", *marks, class_="days", height=58, role="img", aria_label=says))


def _by_day(found: Sequence[Statistics]) -> dict[str, Numbers]:
    """Return the numbers of all queues for each day."""
    names = [*found[0].days] if found else []
    return {name: total(one.days[name] for one in found) for name in names}


def _ended(numbers: Numbers) -> int:
    return numbers.complete + numbers.failed + numbers.cancelled


def _work(one: Statistics) -> float:
    """Return how many seconds the tasks of a queue ran."""
    ran = one.total.running
    return ran.counted * (ran.mean or 0.0)
