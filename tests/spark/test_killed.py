"""A driver and its Java are killed with -9 while they write and archive: what is run again afterwards
comes out exact.
"""

from __future__ import annotations

from spark import killed
from spark.oldest import HAS_SOURCES

# One of each way; `bin/soak` has all steps of each. That the naive way fails is in
# test_enqueue.py. Spark 3.5 has no format, so there a call is killed at the same step.
SOME = ("uncommitted", "stream", killed.ARCHIVED, "format" if HAS_SOURCES else "keyed")


def test_a_driver_killed_while_it_writes_or_archives_leaves_what_the_next_run_makes_exact(
    spark, url, cli, tmp_path
):
    killed.check(spark, url, cli, tmp_path, SOME)
