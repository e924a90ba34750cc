"""Spark 3.5, in a process with an environment of its own: a test here for each way by which we use
Spark. All of them: `bin/matrix --spark`.
"""

from __future__ import annotations

from spark import oldest

SMOKE = {
    "test_enqueue.py": [
        "test_a_row_becomes_a_task_with_all_that_its_columns_and_the_options_say",
        "test_a_task_of_spark_that_dies_midway_and_is_tried_again_doubles_nothing[kill]",
        "test_what_a_worker_has_refused_is_the_cause_where_rows_may_be_written_already",
    ],
    "test_read.py": ["test_columns_have_types_and_times_are_in_utc"],
    "test_archive.py": ["test_limit_and_statuses_choose_and_the_oldest_go_first"],
    "test_stats.py": ["test_groups_are_what_was_asked_for"],
}


def test_spark_3_5_does_the_same():
    names = [f"tests/spark/{file}::{name}" for file, some in SMOKE.items() for name in some]

    assert oldest.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *names) == 0
