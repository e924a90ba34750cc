"""bs.submit in task processes of a real listener: with a spark-submit that we have written, and
once with Spark's own.
"""

from __future__ import annotations

import os
import signal

import pytest
from handlers import children_of_task, ended, files
from running import Programs, until

from blueque import SubmitFailed
from blueque.system.embedded_redis import running_server
from spark.conftest import FAST

WORK = f"""
    import os, time
    from pathlib import Path

    import blueque.spark as bs


    def run(task):
        os.environ["SPARK_HOME"] = str(Path("home").absolute())
        os.environ["PYSPARK_GATEWAY_PORT"] = "1"
        return bs.submit(task, "--odd.py", [task.parameters, 17], {{"spark.ui.enabled": True, "spark_driver_memory": "1g"}})

    def really(task):
        return bs.submit(task, "driver.py", [task.parameters], {FAST | {"spark.master": "local[2]"}!r})
"""
# It does what its last argument but one says, and tells what it was given.
SUBMIT = """
    #!/bin/sh
    printf '%s\\n' "$@" >arguments
    env >environment
    for how; do :; done
    case "$*" in
    *quick*) printf done >"$BLUEQUE_TASK_DIR/result" ;;
    *silent*) ;;
    *fail*) echo "starting"; echo "no such table" >&2; exit 3 ;;
    *wait*) (trap 'echo inner >>told; exit' TERM; touch waiting; while :; do sleep 0.05; done) &
        trap 'echo outer >>told; wait; exit 143' TERM; touch outside; wait; wait ;;
    *finish*) trap 'printf saved >"$BLUEQUE_TASK_DIR/result"; exit 0' TERM; touch finishing; while :; do sleep 0.05; done ;;
    esac
"""
DRIVER = """
    import os, sys, time

    import blueque.spark as bs

    with bs.task() as spark:
        context = spark.sparkContext
        found = [context.appName, *context.getJobTags(), sys.argv[1], context.parallelize(range(6), 3).sum()]
        with open(os.environ["BLUEQUE_TASK_DIR"] + "/result", "w") as result:
            print(*found, file=result)
        # Spark counts in a thread of its own what has ended.
        jobs = context.statusTracker()
        while [jobs.getJobInfo(job).status for job in jobs.getJobIdsForGroup()] != ["SUCCEEDED"]:
            time.sleep(0.01)
    raise ValueError("what comes after that is not there")
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("submit")) as programs,
    ):
        (programs.directory / "home" / "bin").mkdir(parents=True)
        programs.write(SUBMIT, "home/bin/spark-submit", 0o755)
        programs.write(WORK)
        programs.listener("work:run")
        yield programs


def submitted(programs, how):
    return programs.client.get_queue("work").enqueue(how)


def test_it_is_given_the_name_of_the_task_our_options_and_what_the_handler_wants(programs):
    task = ended(programs.client, submitted(programs, "quick"))
    assert (task.status, task.result) == ("complete", "done")
    arguments = (programs.directory / "arguments").read_text().splitlines()
    assert arguments[:2] == ["--name", f"blueque-{task.id}"]
    assert arguments[-3:] == ["./--odd.py", "quick", "17"]
    options = arguments[3:-3:2]
    assert arguments[2:-3:2] == ["--conf"] * len(options)
    assert {
        "spark.ui.enabled=true",
        "spark.driver.memory=1g",
        "spark.ui.showConsoleProgress=false",
    } <= {*options}
    environment = (programs.directory / "environment").read_text().splitlines()
    assert f"BLUEQUE_TASK_ID={task.id}" in environment
    assert not [line for line in environment if line.startswith("PYSPARK_GATEWAY")]
    assert [line for line in environment if line.startswith("PYSPARK_PYTHON=")]


def test_a_program_without_a_result_has_none(programs):
    task = ended(programs.client, submitted(programs, "silent"))
    assert (task.status, task.result) == ("complete", None)


def test_its_exit_code_and_last_words_are_the_error_of_the_task(programs):
    task = ended(programs.client, submitted(programs, "fail"))
    assert (task.status, task.error_type) == ("failed", "blueque.errors.SubmitFailed")
    said = "stderr:\nno such table\nstdout:\nstarting"
    assert (
        task.error == f"SubmitFailed: spark-submit ended with exit code 3; its last lines:\n{said}"
    )
    assert str(SubmitFailed(-9, "")) == "spark-submit ended with signal 9"


def test_sigterm_goes_to_all_its_processes(programs):
    task_id = submitted(programs, "wait")
    until(
        lambda: (
            (programs.directory / "waiting").exists() and (programs.directory / "outside").exists()
        )
    )
    os.kill(programs.client.get_task(task_id).pid, signal.SIGTERM)
    task = ended(programs.client, task_id)
    assert (task.status, task.error) == ("failed", "sys.exit: stopped by SIGTERM")
    assert sorted((programs.directory / "told").read_text().split()) == ["inner", "outer"]
    assert not children_of_task(task_id)


def test_a_program_that_ends_well_on_sigterm_has_done_its_work(programs):
    task_id = submitted(programs, "finish")
    until(lambda: (programs.directory / "finishing").exists())
    os.kill(programs.client.get_task(task_id).pid, signal.SIGTERM)
    task = ended(programs.client, task_id)
    assert (task.status, task.result) == ("complete", "saved")


def test_spark_itself_runs_it_and_a_session_in_it_is_that_of_the_task(programs):
    programs.write(DRIVER, "driver.py")
    programs.listener("work:really", "--beat", "0.2s", queue="spark")
    task = ended(programs.client, programs.client.get_queue("spark").enqueue("today"), 60)
    assert (
        files(programs, task) / "result"
    ).read_text() == f"blueque-{task.id} {task.id} today 15\n"
    assert task.fields["progress"] == "3/3 tasks"
    assert task.error.startswith(
        "SubmitFailed: spark-submit ended with exit code 1; its last lines:\nstdout:\n"
    )
    assert task.error.endswith("\nValueError: what comes after that is not there")
    assert task.fields.get("leaked") is None and not children_of_task(task.id)
