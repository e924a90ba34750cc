from __future__ import annotations

from blueque.model.schedule import Occurrence

FIRST = Occurrence("skipped", 10, 11.0, "t-1", "overlap", status="started")


def test_planned_times_in_a_row_that_one_task_has_kept_from_coming_are_one_occurrence():
    both = FIRST.with_next(FIRST._replace(planned=20, at=21.0), 10)
    assert both == FIRST._replace(at=21.0, until=20, times=2)

    three = both.with_next(FIRST._replace(planned=30, at=31.0), 20)
    assert three == FIRST._replace(at=31.0, until=30, times=3)


def test_what_was_decided_between_two_skipped_times_keeps_them_apart():
    later = FIRST._replace(planned=30, at=31.0)

    assert FIRST.with_next(later, 20) is None
    assert FIRST._replace(until=20, times=2).with_next(later, 10) is None
    assert FIRST.with_next(later._replace(status="pending"), 10) is None
