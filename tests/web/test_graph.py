"""The picture of tasks that wait for each other."""

from __future__ import annotations

import re


def boxes(page):
    """Return the column and the row of each task by its name, in pixels."""
    found = re.findall(r'aria-label="([^":]+): \w+"[^>]*><title>.*?<rect x="(\d+)" y="(\d+)"', page)
    return {name: (int(x), int(y)) for name, x, y in found}


def legend(page):
    return re.findall(
        r"</svg>([^<]+)</span>", page.partition('class="legend"')[2].partition("</p>")[0]
    )


def test_pairs_stand_beside_each_other_in_the_order_in_which_they_were_made(ask, client):
    with client.workflow("pairs") as flow:
        for number in range(9):
            first = flow.add("train", {}, title=f"train {number}")
            flow.add("ocr", {}, after=first, title=f"check {number}")
        flow.add("ocr", None, after=first, key="report")

    found = boxes(ask("/groups/pairs").text)

    rows = [found[f"train {number}"][1] for number in range(9)]
    assert rows == sorted(rows) == [found[f"check {number}"][1] for number in range(9)]
    assert found["ocr"] > found["check 8"]  # a task without parameters has the name of its queue


def test_no_box_moves_when_its_state_changes_and_dots_are_explained(ask, client):
    with client.workflow("night") as flow:
        pages = [flow.add("ocr", {}, title=f"page {number}") for number in range(5)]
        flow.add("ocr", {}, title="bind", after=pages)
    before = ask("/groups/night").text

    client.get_queue("ocr").cancel(pages[3])

    after = ask("/groups/night").text
    assert boxes(after) == boxes(before) and len(boxes(after)) == 6
    assert legend(before) == ["pending", "blocked"]
    assert legend(after)[0] == "cancelled"


def test_what_is_not_drawn_is_counted(ask, client, monkeypatch):
    monkeypatch.setattr("blueque.web.graph.MOST", 3)
    with client.workflow("night") as flow:
        flow.add("ocr", {}, after=[flow.add("ocr", {}) for _ in range(4)])
        flow.add("ocr", {})

    page = ask("/groups/night").text

    assert page.count('class="box ') == 3 and "3 more tasks are not drawn" in page
