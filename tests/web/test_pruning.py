"""The form that deletes what ended long ago: it counts first, and deletes what was counted."""

from __future__ import annotations

import re
import time

import pytest
from asking import NODE, ask_app

from blueque import protocol
from blueque.model.attempt_ref import AttemptRef
from blueque.web import create_app, pruning
from blueque.web.access import Viewer
from blueque.web.acts import FEW
from blueque.web.site import Site

OWN = {"sec-fetch-site": "same-origin"}
PATH = "/prune?older=30d&queue=video&state=complete"


@pytest.fixture
def ended(client, start):
    """Return a function that makes a task that is complete for so many days."""

    def ended(days):
        task = start()
        attempt = AttemptRef("video", task, "token", NODE)
        protocol.complete(client.connections, attempt, "out", time.time() - days * 86400)
        return task

    return ended


def form_of(page):
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))


def left(client, tasks):
    return [client.get_task(task).status is not None for task in tasks]


def test_what_ended_long_ago_is_counted_and_then_deleted(ask, client, ended, everything):
    tasks = [ended(days) for days in (40, 31, 29)]
    before = everything()

    page = ask(PATH)
    assert "2 tasks would be deleted for good, with results, errors and logs" in page.text
    assert "blueque prune -q video --older-than 30d --state complete" in page.text
    assert everything() == before
    moved = ask(PATH, "POST", data=form_of(page), headers=OWN)

    assert "2 tasks deleted." in ask(moved.headers["location"]).text
    assert left(client, tasks) == [False, False, True]
    assert "No finished task is so old" in ask(PATH).text


def test_nothing_is_deleted_if_there_is_more_than_was_shown(ask, client, ended, everything):
    ended(40)
    form = form_of(ask(PATH))
    ended(35)
    before = everything()

    page = ask(PATH, "POST", data=form, headers=OWN)

    assert "1 more by now" in page.text and everything() == before


def test_a_large_number_has_to_be_typed_and_no_more_than_it_is_deleted(
    ask, client, ended, monkeypatch
):
    monkeypatch.setattr(pruning, "MOST", FEW + 1)
    tasks = [ended(40) for _ in range(FEW + 3)]
    form = form_of(ask(PATH))
    refused = ask(PATH, "POST", data=form, headers=OWN)
    assert f"Type the number of tasks, {FEW + 1}." in refused.text
    assert all(left(client, tasks))

    ask(PATH, "POST", data=form | {"typed": str(FEW + 1)}, headers=OWN)

    assert left(client, tasks) == [False] * (FEW + 1) + [True] * 2


def test_it_is_for_the_queues_of_the_page_and_operators(client, ended, everything):
    ended(40)
    before = everything()
    form = {"expected": "1", "at": "0"}
    viewer = create_app(client, authorize=lambda scope: Viewer("eve"))
    site = Site(address="", queues=("audio",))
    other = create_app(client, authorize=lambda scope: Viewer("ada", "operator"), site=site)

    assert ask_app(viewer, PATH, "POST", data=form, headers=OWN).status_code == 403
    assert "Delete old" not in ask_app(viewer, "/tasks").text
    assert "No finished task" in ask_app(other, PATH, "POST", data=form, headers=OWN).text
    assert everything() == before


@pytest.mark.parametrize("query", ["older=soon", "older=30d&keep=x"])
def test_a_mistake_is_told(ask, query):
    assert ask(f"/prune?{query}").status_code == 400
