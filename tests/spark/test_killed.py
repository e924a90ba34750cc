"""A driver and its Java are killed with -9 at every step of a write: what is run again afterwards
comes out exact.
"""

from __future__ import annotations

from spark import killed
from spark.oldest import HAS_SOURCES

# One of each kind: between decision and publish, while publishing, while staging; `bin/soak` has
# them all.
SOME = ("decided", "midway", "keyed", "naive")
SOME_OF_SOURCES = ("format-midway", "stream-staged") if HAS_SOURCES else ()


def test_a_driver_killed_at_any_step_of_a_write_leaves_what_the_next_run_makes_exact(
    spark, url, cli, tmp_path
):
    killed.check(spark, url, cli, tmp_path, SOME + SOME_OF_SOURCES)
