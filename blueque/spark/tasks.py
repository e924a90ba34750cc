"""A Spark session for one task: it ends with the task, reports its progress, and handles SIGTERM."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from blueque.errors import SparkEnded
from blueque.model.task import Task
from blueque.spark import gateway
from blueque.spark.progress import Far, Progress, Reporter
from blueque.spark.sessions import session
from blueque.system import process
from blueque.task_process.running_task import Heeding, RunningTask, current_task

log = logging.getLogger("blueque")

_CANCEL = 2.0  # seconds for the jobs to be cancelled after SIGTERM
_STOP = 30.0  # seconds for the session to stop: it may have files to move
_CLOSED = 1.0  # seconds for Java to end after its connections have closed
_END = 5.0  # seconds for Java to end after that; then it is killed


@contextlib.contextmanager
def task(
    task: Task | None = None, master: str | None = None, **conf: Any
) -> Iterator[SparkSession]:
    """Give a task a Spark session that ends with the block.

        def work(task):
            with bs.task(task) as spark:
                return spark.read.parquet(task.parameters["path"]).count()

    The session is called blueque-[task id], and its jobs have the id as tag and description. The
    progress of the task is reported once a second, in tasks of Spark. On SIGTERM, as when the task
    is cancelled, jobs are cancelled, SystemExit leaves the block, and no process of Spark stays. A
    SIGTERM handler of the task itself stays in place and has to do this.

    task: default: the task that this process runs, or that started this program, as with `submit`.
    master, conf: see `session`.
    Raises what `session` raises; SparkEnded when the Java process ends before the block;
        LookupError when there is no task.
    """
    task = _current() if task is None else task
    with Sigterm() as sigterm:
        spark = session(f"blueque-{task.id}", master, **conf)
        context = spark.sparkContext
        context.addJobTag(task.id.replace(",", " ") or "blueque")
        context.setJobDescription(task.id)
        # After Java has started: that forks, which a process with threads should not do.
        reporter = Reporter(Progress(context.statusTracker()), _teller(task))
        reporter.start()
        try:
            yield spark
        except BaseException as error:
            # The block may have raised only because Java has got SIGTERM, too.
            instead = _Terminated("stopped by SIGTERM") if sigterm.has_come else _end_of_java(error)
            _leave(spark, reporter, sigterm)
            if instead is None or isinstance(error, _Terminated):
                raise
            raise instead from error
        _leave(spark, reporter, sigterm)


def _current() -> RunningTask:
    task = current_task()
    if not task.id:
        raise LookupError("this process runs no task")
    return task


def _teller(task: Task) -> Callable[[Far], object]:
    if not isinstance(task, RunningTask):  # a task of a program that uses its listener as a library
        return lambda far: None
    return lambda far: task.progress(far.done, far.total, "tasks")


class _Terminated(SystemExit):
    """SIGTERM has come."""


class Sigterm:
    """Makes SIGTERM raise in the main thread, once, unless the program handles it itself."""

    def __init__(self) -> None:
        self.has_come = False
        self._is_over = False  # SIGTERM raises no more
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> Sigterm:
        is_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM)
        # Also for a task that reads `should_stop`: it has to stop, and Spark with it.
        if is_main and (handler is signal.SIG_DFL or isinstance(handler, Heeding)):
            self._before = handler
            signal.signal(signal.SIGTERM, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGTERM) == self._take:
            signal.signal(signal.SIGTERM, self._before)

    def hold(self) -> None:
        """Stop raising: the current step must finish."""
        self._is_over = True

    def _take(self, number: int, frame: object) -> None:
        if self.has_come or self._is_over:
            return
        self.has_come = True
        # It may be waiting for a reply of Java. The next request, on the way out, would get that
        # reply.
        gateway.drop_connection()
        raise _Terminated("stopped by SIGTERM")


def _leave(spark: SparkSession, reporter: Reporter, sigterm: Sigterm) -> None:
    """End the session, and Java with it: a task leaves no processes behind."""
    sigterm.hold()
    java = gateway.java_process()
    is_running = java is None or java.poll() is None
    reporter.stop(has_last_word=is_running and not sigterm.has_come)
    if is_running and sigterm.has_come:
        # All jobs, not only those with the tag: threads of the task do not pass it on.
        _within(_CANCEL, spark.sparkContext.cancelAllJobs)
    elif is_running:
        _within(_STOP, spark.stop)
    if java is not None:
        _end(java, sigterm.has_come)


def _within(seconds: float, action: Callable[[], object]) -> None:
    """Run an action in another thread and wait this long for it: Java may no longer answer."""

    def act() -> None:
        try:
            action()
        except Exception as error:  # Java is ending, too; py4j raises all kinds
            log.debug("Spark: %s", error)

    thread = threading.Thread(target=act, name="blueque-spark", daemon=True)
    thread.start()
    thread.join(seconds)


def _end(java: subprocess.Popen[bytes], is_stopped: bool) -> None:
    if is_stopped:
        java.terminate()  # stops the session cleanly, whatever it is doing
    gateway.disconnect()
    if java.stdin is not None:
        java.stdin.close()  # it ends when its input is closed
    try:
        java.wait(_END)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _end_of_java(error: BaseException) -> SparkEnded | None:
    """Return the error for a block that failed because Java was gone: py4j raises many kinds then."""
    java = gateway.java_process()
    if (
        java is None
        or isinstance(error, Py4JJavaError)
        or not isinstance(error, Py4JError | ConnectionError)
    ):
        return None
    try:
        return SparkEnded(java.pid, process.describe(java.wait(_CLOSED)))
    except subprocess.TimeoutExpired:
        return None
