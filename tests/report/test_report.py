"""The page of a report: well-formed, harmless, and drawn within its bounds, whatever it has to
tell. No Spark here.
"""

from __future__ import annotations

import functools
import random
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from blueque.report.page import page
from blueque.report.summary import Bar, Failure, Group, Host, Spread, Summary, Timeline

DAY = 86400
TODAY = 20777  # 20 November 2026
EVIL = "<script>alert('x')</script>\"&amp; ]]> --> \u202egnp.exe 任务 \x00\x1b[31m\ud800"
STATUSES = ["complete", "failed", "cancelled"]
VOID = {"meta"}


class Page(HTMLParser):
    """What a browser would make of it; whatever is open has to be closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.data = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []
        self.said = " ".join("".join(self.data).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.data.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def spread(n=10, median=60.0):
    return Spread(n, median * 1.2, median * 30, median, median * 4, median * 20)


def group(queue=None, day=None, n=10, failed=1, cancelled=1, median=60.0):
    return Group(
        queue,
        day,
        n,
        n - failed - cancelled,
        failed,
        cancelled,
        2,
        spread(n, median / 9),
        spread(n, median),
    )


def rich(queues=("render", "mail"), days=range(TODAY - 9, TODAY + 1), **changes):
    """Return what a busy farm would be told, with days missing."""
    days = [day for day in days if day % 5]
    told = {
        "title": "Farm",
        "source": "archive/",
        "made": 1795255200.0,
        "total": group(n=1000, failed=40),
        "days": [group(day=day, n=100 + day % 7) for day in days],
        "queues": [group(queue, n=500, median=10.0**n) for n, queue in enumerate(queues)],
        "all_queues": len(queues),
        "by_day": {queue: [group(queue, day) for day in days] for queue in queues},
        "run_times": {queue: {0: 1, 61: 20, 62: 9, 130: 2} for queue in queues},
        "failures": [
            Failure("ValueError", 30, 2, queues[0], "id-1", "no", 1795255100.0),
            Failure("lost", 10, 1, None, None, None, None),
        ],
        "all_types": 2,
        "timeline": bars_of(["gpu-1.farm_x", "gpu-2.farm_x"]),
    }
    return Summary(**told | changes)


def bars_of(hosts, count=40, seed=1):
    chance = random.Random(seed)
    bars = {}
    for host in hosts:
        starts = [chance.uniform(0, 9 * DAY) for _ in range(count)]
        bars[host] = [
            Bar(
                start, start + chance.lognormvariate(7, 2), chance.choice(STATUSES), "id", "q", host
            )
            for start in starts
        ]
    return Timeline(0.0, 10.0 * DAY, [Host(host, 2, count, 1e5) for host in hosts], bars=bars)


OLD = Group(None, None, 5, 3, 1, 0, 0, None, None)  # as 1.0.0 leaves them
# Made by the tests that need them: the large one takes a second.
SUMMARIES = {
    "rich": rich,
    "hostile": lambda: rich(
        queues=(EVIL, "a" * 5000, "'\"><b>"),
        title=EVIL,
        source=EVIL,
        failures=[Failure(EVIL, 3, 1, EVIL, EVIL, EVIL * 50, 9e18)],
        timeline=bars_of([EVIL, "<b>host</b>"]),
    ),
    "nothing": lambda: Summary(
        "Farm", "archive/", 0.0, Group(None, None, 0, 0, 0, 0, 0, None, None)
    ),
    "one": lambda: rich(
        queues=("render",),
        days=[TODAY],
        total=group(n=1, failed=0, cancelled=0),
        failures=[],
        timeline=Timeline(
            5.0, 6.0, [Host("h", 1, 1, 1.0)], bars={"h": [Bar(5.0, 6.0, "complete")]}
        ),
    ),
    "no times": lambda: Summary(
        "Farm", "archive/", 0.0, OLD, [OLD._replace(day=TODAY)], 7, [OLD], 1
    ),
    "large": lambda: rich(
        queues=[f"queue-{n}" for n in range(200)],
        days=range(TODAY - 700, TODAY),
        all_queues=5000,
        all_types=70,
        by_day={"queue-3": [group("queue-3", TODAY - 1)]},
        timeline=Timeline(
            0.0,
            90.0 * DAY,
            [Host("h", 1, 10**6, 1e9)],
            step=DAY / 2,
            more=11,
            profiles={
                "h": {
                    "complete": [3.0, 0.0, 2.5] * 60,
                    "failed": [0.0, 0.0, 0.5] * 60,
                    "": [1e-3] * 180,
                }
            },
        ),
    ),
}


@functools.cache
def parsed(name):
    text = page(SUMMARIES[name]())
    return text, Page(text)


@pytest.fixture(params=SUMMARIES)
def made(request):
    return parsed(request.param)


def test_it_is_well_formed_and_each_picture_is_told_in_words(made):
    text, found = made
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]

    assert len(ids) == len({*ids})
    ElementTree.fromstring(text.partition("\n")[2])  # stricter than any browser
    for attributes in found.all("svg"):
        if attributes.get("role") == "img":
            assert attributes["aria-label"]
        else:
            assert attributes.get("aria-hidden") == "true" or "viewbox" in attributes


def test_nothing_comes_from_elsewhere_and_nothing_can_run(made):
    text, found = made
    style = text.partition("<style>")[2].partition("</style>")[0]

    assert (
        found.all("script")
        == found.all("link")
        == found.all("img")
        == found.all("iframe")
        == found.all("a")
        == []
    )
    for _, attributes in found.tags:
        assert not {
            name
            for name in attributes
            if name.startswith("on") or name in ("src", "href", "style", "xlink:href")
        }
    assert "@import" not in style
    assert {*re.findall(r"url\((.*?)\)", text)} == {"#hatch", "#dots", "#many"}
    (policy,) = [
        attributes["content"] for attributes in found.all("meta") if "http-equiv" in attributes
    ]
    assert policy.startswith("default-src 'none';")


def test_all_is_drawn_within_its_picture(made):
    text, found = made

    assert not re.search(r"\b(nan|inf)\b", text.partition("</style>")[2])
    for attributes in found.all("rect"):
        if attributes["width"].endswith("%"):
            x, width = (float(attributes[name][:-1]) for name in ("x", "width"))
            assert -0.001 <= x <= x + width <= 100.01
            assert float(attributes["height"]) > 0
            assert float(attributes["y"]) >= -0.01
    for attributes in found.all("path"):
        assert all(
            -1 <= float(number) <= 1000.01 for number in re.findall(r"[-\d.]+", attributes["d"])
        )


def test_what_somebody_else_wrote_is_shown_and_is_never_markup():
    text, found = parsed("hostile")

    assert (
        "<script>alert('x')</script>\"&amp; ]]> --> \\u202egnp.exe 任务 \\x00\\x1b[31m\\ud800"
        in found.said
    )
    assert "'\"><b>" in found.said
    harmless = rich(
        queues=("a", "b", "c"),
        failures=[Failure("x", 3, 1, "a", "id", "no", 1.0)],
        timeline=bars_of(["h1", "h2"]),
    )
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in Page(page(harmless)).tags]
    assert "a" * 59 + "…" in found.said
    assert "a" * 80 not in found.said  # whole only where a pointer asks for it
    text.encode()


def test_an_empty_archive_is_said_to_be_empty():
    assert "No tasks: this report was made of an empty" in parsed("nothing")[1].said


def test_what_is_left_out_is_said():
    said = parsed("large")[1].said

    assert "180 more" in said
    assert "4,800 queues with fewer tasks left out." in said
    assert "68 types that occurred less often left out." in said
    assert "11 hosts with less work left out." in said
    assert (
        "There are too many runs to draw each: the height is their average number at a time, over 12 h"
        in said
    )


def test_tasks_without_times_and_without_end_are_named():
    said = parsed("no times")[1].said

    assert "4 tasks of Blueque 1.0.0 without a time of start" in said
    assert "1 task had not ended." in said
    assert "7 tasks without a day, or over a year from all others: counted, but not drawn." in said


def test_headline_and_tables_have_the_numbers():
    said = parsed("rich")[1].said

    assert "Tasks1,000 in 2 queues" in said
    assert "Failed40 4.0 %" in said
    assert "Restarted" in said and "Retried" not in said  # it knows how often tasks have started
    assert "Ran, median1 m 90 % within 4 m" in said
    assert "ValueError3075 %render and 1 more2026-11-21 09:58no id-1" in said


def test_a_minute_is_told_by_the_second_and_its_times_stand_where_they_are():
    short = Timeline(5.0, 45.0, [Host("h", 1, 1, 1.0)], bars={"h": [Bar(5.0, 44.0, "complete")]})

    text = page(rich(timeline=short, total=group(median=0.012)))

    said = Page(text).said
    assert "1970-01-01 00:00:05 to 1970-01-01 00:00:45 UTC." in said
    assert "complete, 1970-01-01 00:00:05 to 1970-01-01 00:00:44, 39 s" in said
    assert "Ran, median12 ms 90 % within 48 ms" in said
    axis = re.findall(r'<text x="([\d.]+)%" y="12" class="tick (\w+)( odd)?">00:00:(\d\d)', text)
    assert len(axis) > 4 and {anchor for _, anchor, _, _ in axis} == {"mid"}
    assert all(abs(float(x) - (int(second) - 5) / 0.4) < 0.01 for x, _, _, second in axis)


def test_a_picture_of_a_gap_is_two_lines_and_a_day_alone_is_a_dot():
    days = {TODAY - 9: spread(), TODAY - 8: spread(), TODAY - 3: spread()}
    text = page(rich(days=days, by_day={}))

    lines = [
        attributes["d"]
        for attributes in Page(text).all("path")
        if attributes.get("class") == "line p50"
    ]
    dots = [
        attributes["d"]
        for attributes in Page(text).all("path")
        if attributes.get("class") == "dots p50"
    ]

    assert [line.count("M") for line in lines] == [2, 2]
    assert [line.count("L") for line in lines] == [1, 1]
    assert [dot.count("h0.01") for dot in dots] == [1, 1]
