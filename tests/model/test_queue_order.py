"""Selection: in which order a listener of several queues tries them."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest

from blueque.errors import InvalidInput, InvalidType
from blueque.model.queue_order import NAMES, Ordered, ReducedLottery, RoundRobin, selector

DRAWS = 10_000
WEIGHTS = {"high": 100, "middle": 40, "low": 5}


def taken(select, work):
    """Take until nothing is left of so many tasks in each queue, and return the queues in the order
    of the tasks.
    """
    order, left = [], Counter(work)
    while +left:
        order.append(first(select, list(work), set(+left)))
        left[order[-1]] -= 1
    return "".join(order)


def first(select, queues, ready):
    """Take one task of the first queue that comes, as whoever finds work there asks for no other."""
    return next(iter(select(queues, ready)))


def is_share(count, part, draws=DRAWS):
    """Tell whether so many of the draws may be chance: within 5 standard deviations, or 1 of
    1,700,000 fails.
    """
    return abs(count - draws * part) <= 5 * math.sqrt(draws * part * (1 - part))


def test_round_robin_takes_from_each_queue_in_turn_and_passes_over_the_empty():
    assert taken(RoundRobin(), {"C": 3, "B": 2, "A": 5}) == "CBACBACAAA"


def test_round_robin_goes_on_after_the_queue_that_gave_the_last_task_not_after_those_that_gave_none():
    select = RoundRobin()
    queues = ["A", "B", "C"]
    assert first(select, queues, queues) == "A"
    assert list(select(queues, {"B", "C"})) == ["B", "C"], "and neither had a task any more"
    assert list(select(queues, ())) == []
    assert first(select, queues, queues) == "B"
    assert first(select, ["X", "Y"], {"X", "Y"}) == "X", "queues among which that one is not"


def test_a_lottery_draws_in_proportion_to_the_weights():
    select = ReducedLottery(WEIGHTS, Random(1).random)

    drawn = Counter(first(select, list(WEIGHTS), set(WEIGHTS)) for _ in range(DRAWS))

    assert all(is_share(drawn[queue], weight / 145) for queue, weight in WEIGHTS.items()), drawn


def test_a_queue_that_is_empty_leaves_the_pool_and_the_others_keep_their_proportion():
    select = ReducedLottery(WEIGHTS, Random(2).random)

    drawn = Counter(first(select, list(WEIGHTS), {"middle", "low"}) for _ in range(DRAWS))

    assert drawn.keys() == {"middle", "low"}
    assert is_share(drawn["low"], 5 / 45), drawn


def test_a_lottery_tries_every_queue_that_has_work_once_and_then_gives_up():
    select = ReducedLottery(WEIGHTS, Random(3).random)
    orders = Counter(tuple(select(list(WEIGHTS), {"high", "low"})) for _ in range(DRAWS))
    assert orders.keys() == {("high", "low"), ("low", "high")}
    assert is_share(orders["low", "high"], 5 / 105), orders
    assert list(select(list(WEIGHTS), ())) == []


def test_no_queue_starves_in_a_lottery_though_all_the_others_always_have_work():
    queues = [f"queue {number}" for number in range(20)]
    select = ReducedLottery(dict.fromkeys(queues[1:], 100), Random(4).random)
    part = 1 / 1901

    drawn = [first(select, queues, set(queues)) for _ in range(DRAWS)]

    assert is_share(drawn.count("queue 0"), part)
    assert "queue 0" in drawn[: math.ceil(math.log(1e-6) / math.log(1 - part))], (
        "but for one chance in a million"
    )


def test_a_draw_at_either_end_of_the_chances_is_one_of_the_queues():
    for number, winner in ((0.0, "A"), (1 - 2**-53, "C")):
        select = ReducedLottery({"A": 0.1, "B": 0.2, "C": 0.3}, lambda number=number: number)
        assert first(select, "ABC", set("ABC")) == winner
    assert first(ReducedLottery(random=lambda: 1.0), "AB", set("AB")) == "B", (
        "whatever floats may lose"
    )


def test_a_lottery_is_random_by_itself():
    select = ReducedLottery()
    drawn = Counter(first(select, ["A", "B"], {"A", "B"}) for _ in range(DRAWS))
    assert is_share(drawn["A"], 1 / 2), drawn


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), 2e9])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(InvalidInput, match="a weight is above 0"):
        ReducedLottery({"A": weight})


@pytest.mark.parametrize("weight", ["5", True, None])
def test_a_weight_that_is_no_number_is_refused(weight):
    with pytest.raises(InvalidType, match="a weight is a number"):
        ReducedLottery({"A": weight})


def test_each_name_has_its_selector():
    assert [type(selector(name, {})) for name in NAMES] == [Ordered, RoundRobin, ReducedLottery]
    drawn = Counter(
        first(selector("lottery", {"A": 9}), ["A", "B"], {"A", "B"}) for _ in range(DRAWS)
    )
    assert is_share(drawn["B"], 1 / 10), drawn
