"""bs.session: what every session of ours is like."""

from __future__ import annotations


def find_blueque(_):
    """Return where a worker has Blueque from. In a module of the tests, which workers have to find as well."""
    import sys

    import blueque

    return [blueque.__file__, sys.executable]


def test_workers_run_this_python_and_find_this_blueque(spark):
    import sys

    import blueque

    assert spark.sparkContext.parallelize([1], 1).map(find_blueque).collect() == [[blueque.__file__, sys.executable]]


def test_it_counts_time_in_utc_and_shows_nothing(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sql("select cast(timestamp '2026-11-21 00:00:00' as string)").first()[0] == "2026-11-21 00:00:00"
