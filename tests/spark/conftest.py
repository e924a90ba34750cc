"""One Spark session for all tests here. What is about Redis only is tested without it, elsewhere,
and faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import object_store
import process_state
import pytest
from running import TEST_PATHS

from spark import shared_classes
from spark.oldest import HAS_SOURCES

if TYPE_CHECKING:
    import redis as redis_py
    from pyspark.sql import DataFrame, SparkSession

ROWS = 4000  # of `df`, in two partitions: two chunks each, and four of the naive way
collect_ignore = [] if HAS_SOURCES else ["test_writer.py"]
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# What makes Spark quick for a minute, and slow for an hour.
FAST = {
    JAVA_OPTIONS: shared_classes.USE if shared_classes.FILE.exists() else shared_classes.QUICK,
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # no class of its own for each query, which takes longer than to run it: see `compiled`
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
DAEMON = "spark.worker_daemon"  # where workers find our modules
WARM = {"spark.python.daemon.module": DAEMON}


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.spark)


@pytest.fixture(autouse=True)
def no_traces() -> Iterator[None]:
    """As for all tests, but for connections to Java and the threads that serve them: they stay as
    long as the session.
    """
    before = process_state.take()
    yield
    traces = process_state.differences(before, apart_from=("descriptors", "threads", "children"))
    assert not traces, "\n".join(["This test has left in its process:", *traces])


@pytest.fixture(scope="session", autouse=True)
def spark_home() -> Iterator[None]:
    shared_classes.make_home()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(shared_classes.HOME))
        yield


@pytest.fixture(scope="session")
def spark(spark_home: None) -> Iterator[SparkSession]:
    """The session: two threads, and four tries for each task. Its workers find the modules of the
    tests.

    It leaves nothing in the checkout.
    """
    import blueque.spark as bs  # here: tests without a session need no pyspark

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*TEST_PATHS, os.environ.get("PYTHONPATH", "")]))
        for name, value in object_store.CREDENTIALS.items():
            patch.setenv(name, value)
        found = bs.session("tests", "local[2,4]", **FAST, **WARM)
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def active(request: pytest.FixtureRequest) -> None:
    """Have the session be that of this thread again: a test that forks leaves Java with another
    thread for ours.
    """
    if "spark" in request.fixturenames:
        activate(request.getfixturevalue("spark"))


def activate(session: SparkSession) -> None:
    """Make this thread use the session: without one, Spark writes to no source that is written in
    Python. Java has a thread for each of ours.
    """
    from pyspark.sql.types import StructType  # here: see above

    session.createDataFrame([], StructType([]))  # the cheapest call of the public ones that do so


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Have Spark compile queries, as it does for users: for tests of what expressions return."""
    usual = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    for name, value in usual.items():
        spark.conf.set(name, value)
    yield
    for name in usual:
        spark.conf.set(name, FAST[name])


@pytest.fixture
def sources() -> None:
    """For tests of the data source."""
    if not HAS_SOURCES:
        pytest.skip("Spark 3.5 has no data sources in Python")


@pytest.fixture
def df(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions as F  # here: see above

    return spark.range(0, ROWS, 1, 2).select(
        F.format_string("scene-%05d", "id").alias("scene"), F.col("id").alias("frame")
    )


@pytest.fixture
def mishap(
    spark: SparkSession, cli: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Return what plans a mishap; bs.enqueue writes with it from here on."""
    from blueque.spark import enqueueing  # here: see above
    from spark import mishaps

    make = enqueueing.make_writer
    monkeypatch.setattr(enqueueing, "make_writer", lambda *given: mishaps.Struck(make(*given)))
    if HAS_SOURCES:
        from spark import mishap_source  # here: see oldest.py

        spark.dataSource.register(mishap_source.MishapSource)
    yield lambda *given, **named: mishaps.plan(cli, *given, **named)
    mishaps.unwatch()
