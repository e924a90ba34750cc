"""The judge of chaos: what it excuses, and that it notices what has no excuse."""

from __future__ import annotations

import pytest
from chaos_ledger import CRASHED, Away, Ledger, Promise, Run, crowds, overlaps, redone, too_early

LOST_AFTER = 2.7
TASKS = {"t": Promise(is_safe=True)}
LEDGER = [("start parent", 1.0), ("start early", 1.5), ("end parent", 2.0), ("start late", 2.5)]

# Node one was frozen from 10.5 to 13.5. What had its time by then came to its end at once, and had
# been given up.
EXCUSES = {
    "frozen": [Away("one", "frozen", 10.5, 13.5)],
    "frozen, then cut off": [Away("one", "frozen", 10.5, 12.0), Away("one", "cut off", 12.4, 13.5)],
    "frozen, then no time to beat": [
        Away("one", "frozen", 10.5, 12.9),
        Away("one", "machine stood still", 12.9, 13.4),
    ],
    "still frozen": [Away("one", "frozen", 10.5)],
}
NO_EXCUSES = {
    "nothing": [],
    "not for long": [Away("one", "frozen", 10.5, 12.13)],
    "able to beat in between": [
        Away("one", "frozen", 10.5, 12.0),
        Away("one", "cut off", 12.6, 13.5),
    ],
    "another node": [Away("two", "frozen", 10.5, 13.5)],
    "long before": [Away("one", "frozen", 5.0, 8.0)],
    "too late": [Away("one", "frozen", 14.6, 18.0)],
    "the machine stood still for a moment": [Away("one", "machine stood still", 12.0, 13.4)],
}


def _cases(excuses: dict[str, list[Away]], is_wrong: bool) -> list[object]:
    return [pytest.param(away, is_wrong, id=name) for name, away in excuses.items()]


@pytest.mark.parametrize(("away", "is_wrong"), [*_cases(EXCUSES, False), *_cases(NO_EXCUSES, True)])
def test_what_was_given_up_though_it_ended_is_noticed_unless_its_node_was_really_away(
    away, is_wrong
):
    runs = [Run("t", 1, 11, 1, "one", began=10.0, seen=13.51, ended=True)]

    assert bool(redone(runs, TASKS, away, {"t"}, LOST_AFTER)) == is_wrong


@pytest.mark.parametrize(("away", "is_wrong"), [*_cases(EXCUSES, False), *_cases(NO_EXCUSES, True)])
def test_an_attempt_that_began_beside_another_is_noticed_unless_the_node_of_that_was_really_away(
    away, is_wrong
):
    runs = [
        Run("t", 1, 11, 1, "one", began=10.0, seen=13.51),
        Run("t", 2, 12, 2, "two", began=13.4, seen=14.0),
    ]

    assert bool(overlaps(runs, away, LOST_AFTER)[1]) == is_wrong


@pytest.mark.parametrize(("crashed", "is_wrong"), [((13.6, 14.0), False), ((14.6, 15.0), True)])
def test_what_was_done_again_is_noticed_unless_its_node_crashed_before_it_could_tell(
    crashed, is_wrong
):
    runs = [
        Run("t", 1, 11, 1, "one", began=10.0, seen=13.51, ended=True),
        Run("t", 2, 12, 2, "two", began=17.0, seen=18.0, ended=True),
    ]

    assert (
        bool(redone(runs, TASKS, [Away("one", CRASHED, *crashed)], set(), LOST_AFTER)) == is_wrong
    )


@pytest.mark.parametrize(
    ("killed", "is_wrong"),
    [([(13.4, 13.6), None], False), ([(14.6, 14.6), None], True), ([None, (13.6, 13.6)], True)],
    ids=["as it ended", "later", "the other attempt"],
)
def test_what_was_done_again_is_noticed_unless_its_process_was_killed_as_it_ended(killed, is_wrong):
    runs = [
        Run("t", 1, 11, 1, "one", began=10.0, seen=13.51, ended=True, killed=killed[0]),
        Run("t", 2, 12, 2, "two", began=13.55, seen=18.0, ended=True, killed=killed[1]),
    ]

    assert bool(redone(runs, TASKS, [], set(), LOST_AFTER)) == is_wrong


@pytest.mark.parametrize(
    ("limit", "away", "crowd"),
    [
        (1, [], 1),
        (2, [], 0),
        (1, [Away("a", "frozen", 1.0, 9.0)], 0),
        (1, [Away("b", "frozen", 1.0, 9.0)], 1),
    ],
)
def test_a_lock_that_too_many_hold_is_noticed_unless_a_node_was_away(limit, away, crowd):
    runs = [
        Run("t1", 1, 11, 1, "a", began=0.5, seen=6.0),
        Run("t2", 1, 12, 2, "b", began=5.0, seen=7.0),
        Run("t3", 1, 13, 3, "b", began=7.5, seen=8.0),
        Run("free", 1, 14, 3, "b", began=0.0, seen=9.0),
    ]
    tasks = {
        task: Promise(lock="one" if task != "free" else None) for task in ("t1", "t2", "t3", "free")
    }

    held, wrong = crowds(runs, tasks, away, {"one": limit}, 3.0)

    assert (held, len(wrong)) == (3, crowd)


@pytest.mark.parametrize(
    ("parent", "given_up", "early"),
    [
        (Promise(), set(), 1),
        (Promise(consents=1), set(), 0),
        (Promise(answer="cancelling"), set(), 0),
        (Promise(), {"parent"}, 0),
    ],
)
def test_what_began_before_the_end_of_that_for_which_it_waits_is_noticed(
    tmp_path, parent, given_up, early
):
    lines = tmp_path / "ledger"
    lines.write_text("".join(f"{what} 1 11 1 one {at}\n" for what, at in LEDGER))
    ledger = Ledger(lines)
    ledger.read()
    tasks = {"parent": parent, "early": Promise(parents=["parent"])}
    tasks |= {"late": Promise(parents=["parent"])}

    assert len(too_early(ledger, tasks, given_up)[1]) == early
