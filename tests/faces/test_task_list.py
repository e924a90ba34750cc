"""Which tasks are listed, for `blueque ls` and for the page alike."""

from __future__ import annotations

import pytest

from blueque.faces.task_list import Sorting, choice_of, load, usual_states
from blueque.model.task import Task
from blueque.queries.listing import STATUSES
from blueque.queries.selection import Selection


@pytest.mark.parametrize(
    ("selection", "node", "states"),
    [
        (Selection(), None, {"started", "reserved", "pending"}),
        (Selection(), "render01", {"started", "reserved"}),
        (Selection(key=("scene-17",)), "render01", {*STATUSES}),
    ],
)
def test_what_is_named_is_looked_for_in_all_states_and_what_has_not_begun_on_no_host(
    selection, node, states
):
    assert {*usual_states(selection, node)} == states


def test_a_node_a_host_and_an_order_choose_and_sort(client):
    queue, inspector = client.get_queue("video"), client.get_inspector()
    ids = [queue.enqueue(number) for number in (1, 3, 2)]
    order = Sorting(lambda task, now: ids.index(task.id), is_reversed=True)

    choice = choice_of(["video"], inspector, Selection(), None, order)
    listing = load(inspector, ["video"], ["pending"], 2, choice, ["parameters"])
    on_host = choice_of(["video"], inspector, Selection(), "render01", None)

    assert [task.parameters for task in listing.tasks] == [2, 3]
    assert choice_of(["video"], inspector, Selection(), None, None) is None
    assert on_host is not None
    assert on_host.wants(Task("t", {"node": "render01_7"}), 0.0)
    assert not on_host.wants(Task("t", {"node": "render02_7"}), 0.0)
    assert not on_host.wants(Task("t", {}), 0.0)
