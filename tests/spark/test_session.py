"""bs.session: what every session of ours is like, in a forked process too."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from running import TEST_PATHS, is_there, until

import blueque
import blueque.spark as bs
from blueque import InvalidInput, JobFailed, NotInstalled, SparkEnded
from blueque.spark import environment, gateway
from blueque.system import process
from blueque.task_process.running_task import RunningTask
from spark import mishaps, shared_classes
from spark.conftest import FAST, ROWS
from spark.exact import is_exact
from spark.oldest import HAS_SOURCES


def find_blueque(_):
    """Return where a worker has Blueque from. In a module of the tests, which workers have to find
    as well.
    """
    return [blueque.__file__, sys.executable]


def test_workers_run_this_python_and_find_this_blueque(spark):
    assert spark.sparkContext.parallelize([1], 1).map(find_blueque).collect() == [
        find_blueque(None)
    ]


def test_it_counts_time_in_utc_and_shows_nothing(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.skipif(not HAS_SOURCES, reason="bin/test makes the file for the newest Spark only")
def test_its_java_has_the_classes_of_spark_from_the_file_that_all_share(spark):
    assert shared_classes.FILE.exists(), "bin/test makes the file of classes"
    java = gateway.java_process().pid
    assert str(shared_classes.FILE) in Path(f"/proc/{java}/maps").read_text()


def use_spark(writing, inherited, directory, url):
    """What a task process does that is forked from one with a session, and whose Java is killed
    while it enqueues.
    """
    found = []
    try:
        with bs.task(RunningTask("id", {}, directory), "local[1]", **FAST) as spark:
            found.append(gateway.java_process().pid)
            try:
                inherited.count()
            except Exception as error:  # py4j's, of whatever kind
                found.append(str(error))
            rows = spark.range(0, ROWS, 1, 2)
            found.append(rows.count())
            os.write(writing, f"{found[0]}\n".encode())
            try:
                bs.enqueue(rows, "render", key="id", url=url, group="tonight")
            except JobFailed as error:
                found.append(str(error))
            rows.count()
    except SparkEnded as error:
        found += [error.pid, error.ending]
    os.write(writing, f"{json.dumps(found)}\n".encode())
    return 0


def test_a_forked_process_gets_a_session_of_its_own_whose_java_may_die(
    spark, url, cli, mishap, tmp_path, monkeypatch
):
    mishap("pause", "after enqueue_members", 2, partition=0)
    # Its workers find the modules of the tests.
    path = os.pathsep.join([*TEST_PATHS, os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    numbers = spark.range(7)
    reading, writing = os.pipe()
    pid = process.fork(lambda: use_spark(writing, numbers, str(tmp_path), url))
    os.close(writing)
    answers = []
    with open(reading) as told:
        # it is starting, or asking, at the same time
        while not process.wait_readable([reading], 0.2):
            answers.append(numbers.count())
        java = int(told.readline())
        until(lambda: mishaps.struck(cli) == 1 or process.wait_readable([reading], 0), 120)
        assert mishaps.struck(cli) == 1, told.readline()
        os.kill(java, signal.SIGKILL)
        own, refused, count, failed, ended, ending = json.loads(told.readline())

    assert process.wait_for(pid) == 0
    assert java == own and java != spark.sparkContext._gateway.proc.pid
    assert (count, ended, ending) == (ROWS, java, "killed by SIGKILL")
    assert "Connection refused" in refused
    assert {*answers} == {7} and numbers.count() == 7
    until(lambda: not is_there(java), what="the end of its Java")
    assert failed.startswith("the Spark job for queue 'render', group 'tonight' has failed: ")
    mishaps.forget(cli)
    said = {"key": "id", "url": url, "group": "tonight"}
    assert bs.enqueue(spark.range(0, ROWS, 1, 2), "render", **said).tasks == ROWS
    assert is_exact(cli, ROWS)


# What needs no Java


@pytest.mark.parametrize(
    ("given", "option"),
    [
        (("spark.ui.enabled", True), ("spark.ui.enabled", "true")),
        (("spark_sql_shuffle_partitions", 8), ("spark.sql.shuffle.partitions", "8")),
        (("spark.executorEnv.A_B", "c"), ("spark.executorEnv.A_B", "c")),
    ],
)
def test_options_are_taken_as_python_has_them(given, option):
    assert environment.option(*given) == option


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("shuffle_partitions", 8, "'shuffle_partitions' is not an option of Spark"),
        ("spark.ui.port", None, "spark.ui.port of Spark is None"),
    ],
)
def test_what_is_no_option_is_refused(name, value, said):
    with pytest.raises(InvalidInput, match=said):
        environment.option(name, value)


def test_what_is_set_already_stays(tmp_path):
    (tmp_path / "java").touch(0o755)
    given = {
        "PATH": str(tmp_path),
        "PYSPARK_PYTHON": "python3.11",
        "PYTHONPATH": "mine",
        "SPARK_LOCAL_IP": "10.0.0.1",
    }
    environ = dict(given)

    environment.prepare(environ, is_local=True)

    path = environ["PYTHONPATH"].split(os.pathsep)
    assert environ == {
        **given,
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_DRIVER_PYTHON": "python3.11",
    }
    assert path[-1] == "mine"


def test_the_python_of_workers_elsewhere_is_for_others_to_say(tmp_path):
    (tmp_path / "java").touch(0o755)
    environ = {"PATH": str(tmp_path)}

    environment.prepare(environ, is_local=False)

    assert "PYSPARK_PYTHON" not in environ  # our path may be nothing there
    assert environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_without_java_it_says_what_to_install(tmp_path):
    with pytest.raises(
        NotInstalled, match=r"Spark needs Java 17 or newer, which is not installed; apt install"
    ):
        environment.prepare({"PATH": str(tmp_path)}, is_local=True)
    with pytest.raises(NotInstalled, match="none in JAVA_HOME, /nowhere"):
        environment.prepare({"PATH": os.environ["PATH"], "JAVA_HOME": "/nowhere"}, is_local=True)


def test_whoever_configures_spark_says_where_it_runs_and_what_it_logs(tmp_path):
    assert environment.default_master({}) == "local[*]"
    assert environment.default_master({"MASTER": "local[3]"}) == "local[3]"
    assert environment.default_master({"PYSPARK_GATEWAY_PORT": "1"}) is None
    environ = {"SPARK_HOME": str(tmp_path)}
    assert environment.default_master(environ) == "local[*]" and environment.quiet_log(environ)
    (tmp_path / "conf").mkdir()
    for name in ("spark-defaults.conf", "log4j2.properties"):
        (tmp_path / "conf" / name).touch()
    assert environment.default_master(environ) is None and not environment.quiet_log(environ)


def test_spark_submit_is_that_of_spark_home_or_of_pyspark(tmp_path):
    assert environment.find_submit({}).endswith("pyspark/bin/spark-submit")
    with pytest.raises(InvalidInput, match="is SPARK_HOME right"):
        environment.find_submit({"SPARK_HOME": str(tmp_path)})
