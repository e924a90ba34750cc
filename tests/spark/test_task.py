"""bs.task in task processes of a real listener: a session for each, and nothing left of it, however
the task ends.
"""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
from handlers import children_of_task, ended
from running import Programs, until

from blueque.spark.progress import Far, Progress
from blueque.spark.tasks import Sigterm
from blueque.system.embedded_redis import running_server
from spark.conftest import FAST

TASKS = ("count", "wait to be cancelled", "wait to be killed")
# Each task notes who runs its Spark job when one does: "busy.[task id].[pid of the worker]".
WORK = f"""
    import json, os, time
    from pathlib import Path

    import blueque, blueque.spark as bs

    FAST = {FAST!r}


    def run(task):
        return globals()[task.parameters](task)

    def hold(task_id):
        def hold(number):
            Path(f"busy.{{task_id}}.{{os.getpid()}}").touch()
            while not Path("go").exists():
                time.sleep(0.01)
            return number
        return hold

    def count(task):
        with bs.task(task, "local[2]", **FAST) as spark:
            context = spark.sparkContext
            found = [context.appName, [*context.getJobTags()], context.getLocalProperty("spark.job.description")]
            found.append(context.parallelize(range(4), 4).map(hold(task.id)).sum())
        try:
            bs.session()
        except blueque.SparkEnded as error:
            found.append(str(error))
        return found

    def wait(task):
        try:
            with bs.task(task, "local[2]", **FAST) as spark:
                spark.sparkContext.parallelize(range(4), 4).map(hold(task.id)).sum()
        finally:
            Path(f"left.{{task.id}}").touch()
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A listener with a slot for each task here, all of which start Spark at the same time: that is
    quicker.
    """
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("tasks")) as programs,
    ):
        programs.write(WORK)
        programs.listener("work:run", "--beat", "0.2s", slots=len(TASKS))
        yield programs


@pytest.fixture(scope="module")
def tasks(programs):
    """The tasks, each of which has Spark at work."""
    queue = programs.client.get_queue("work")
    ids = {how: queue.enqueue(how.partition(" ")[0]) for how in TASKS}
    for task_id in ids.values():
        until(lambda task_id=task_id: worker_of(programs, task_id), 120, "a job of Spark")
    return {how: programs.client.get_task(task_id) for how, task_id in ids.items()}


def worker_of(programs, task_id):
    """Return the pid of a Python worker that runs a job of the task; None when there is none yet."""
    found = [int(path.suffix[1:]) for path in programs.directory.glob(f"busy.{task_id}.*")]
    return found[0] if found else None


def spark_of(programs, task):
    """Return the processes of a task's Spark: Java, what forks its Python workers, and a worker
    that is at work.
    """
    found = children_of_task(task.id)
    assert worker_of(programs, task.id) in found and len(found) >= 3
    return found


def test_nothing_of_spark_outlives_a_task_that_is_killed(programs, tasks):
    task = tasks["wait to be killed"]
    assert spark_of(programs, task)
    os.kill(task.pid, signal.SIGKILL)
    until(lambda: not children_of_task(task.id), what="the end of Java and its workers")
    done = ended(programs.client, task.id)
    assert (done.status, done.error[:17]) == ("failed", "killed by SIGKILL")


def test_a_task_that_is_cancelled_leaves_its_body_and_nothing_of_spark(programs, tasks):
    task = tasks["wait to be cancelled"]
    assert spark_of(programs, task)
    assert programs.client.get_queue("work").cancel(task.id) == "cancelling"
    assert ended(programs.client, task.id).status == "cancelled"
    assert (programs.directory / f"left.{task.id}").exists()
    assert not children_of_task(task.id)


def test_a_task_shows_its_progress_and_ends_with_its_session(programs, tasks):
    task = tasks["count"]
    assert spark_of(programs, task)
    until(
        lambda: programs.client.get_task(task.id).fields.get("progress") == "0/4 tasks",
        what="the progress of the job",
    )
    (programs.directory / "go").touch()
    done = ended(programs.client, task.id)
    name, tags, description, result, second = json.loads(done.fields["result"])
    assert (name, tags, description, result) == (f"blueque-{task.id}", [task.id], task.id, 6)
    assert "start it in a new process" in second
    assert done.fields.get("leaked") is None and not children_of_task(task.id)


def test_sigterm_leaves_a_job_at_once_and_what_is_asked_next_gets_its_own_answer(spark, tmp_path):
    def hold(number):
        (tmp_path / "busy").touch()
        until(lambda: (tmp_path / "go").exists(), 30)

    def send():
        until(lambda: (tmp_path / "busy").exists(), 60)
        # to this process alone: Java gets none, and answers later
        os.kill(os.getpid(), signal.SIGTERM)

    with Sigterm() as sigterm:
        threading.Thread(target=send).start()
        with pytest.raises(SystemExit, match="stopped by SIGTERM"):
            spark.sparkContext.parallelize(range(2), 2).foreach(hold)
        assert not (tmp_path / "go").exists()
        (tmp_path / "go").touch()

        assert spark.range(3).count() == 3 and sigterm.has_come
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_progress_is_that_of_all_jobs_and_stages_that_were_left_out_do_not_count(spark):
    context = spark.sparkContext
    progress = Progress(context.statusTracker())
    before = progress.look()
    pairs = (
        context.parallelize(range(6), 3)
        .map(lambda number: (number % 2, number))
        .reduceByKey(max, 2)
    )

    # the second time the first stage is there already
    assert pairs.count() == 2 and pairs.count() == 2

    after = until(
        lambda: (
            far if (far := progress.look()).total > before.total and far.done == far.total else None
        )
    )
    assert after == Far(before.done + 3 + 2 + 2, before.total + 3 + 2 + 2)
