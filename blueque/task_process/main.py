"""The task process: what runs between the fork and the exit record. It talks to files only, never
to Redis.

`main` is the whole life of the process; work.py has the two kinds of work that it can do.
"""

from __future__ import annotations

import gc
import io
import os
import resource
import signal
import sys
import time
from collections.abc import Callable

from blueque.spool import checkpoint
from blueque.spool.attempt import STOP, Attempt
from blueque.spool.outcome_record import record_of
from blueque.spool.spool import Spool
from blueque.system import log_format, process, signals
from blueque.task_process import running_task
from blueque.task_process.handlers import Work
from blueque.task_process.handshake import Waiting, Word
from blueque.task_process.redirect import Output
from blueque.task_process.running_task import RunningTask

SIGNALS = (
    signal.SIGTERM,
    signal.SIGUSR2,
    signal.SIGQUIT,
    signal.SIGINT,
    signal.SIGCHLD,
    signal.SIGTTOU,
)


def main(
    work_of: Callable[[str], Work],
    spool: Spool,
    gate: int,
    prepared: str | None = None,
    is_outdated: Callable[[], bool] = lambda: False,
) -> int:
    """Wait at the gate, do the work, write the exit record; return the exit status.

    work_of: returns the work for the tasks of a queue. gate: see gate.py.
    prepared: the queue whose work to prepare before there is a task.
    is_outdated: asked when there is a task; True: leave it to another process.
    """
    is_warm = prepared is not None
    pid = os.getpid()
    log_format.stop_logging()
    gc.freeze()  # what is the listener's is not to be looked at, and copied for that
    os.setsid()
    signal.set_wakeup_fd(-1)
    # they were the listener's; that one it has seen to, if it was
    signals.discard(set(SIGNALS) - {signal.SIGUSR2})
    # there is a file to look at; its default would be the end of us
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signals.unblock(SIGNALS)
    waiting, output, blank = Waiting(gate), Output(), spool.make_blank()
    if blank is not None or is_warm:
        output.keep(blank)
    if prepared is not None and (prepare := work_of(prepared).prepare) is not None:
        _prepare(prepare, output)
        if os.getpid() != pid:  # a child that the import has forked, and that came back from it
            return 0
    _rehearse(spool)
    word = waiting.word()
    if word is None or is_outdated():
        return _leave(is_warm)
    # for the exit record, should the task use up all descriptors
    spare = os.open(os.devnull, os.O_RDONLY)
    attempt = spool.attempt_at(word.path)
    spool.remove_blank(pid)
    task = _get_ready(attempt, word, output, spool.max_bytes)
    if not waiting.is_opened():
        return _leave(is_warm)
    return _run(work_of, task, attempt, spare, word.time_limit)


def _leave(is_warm: bool) -> int:
    if is_warm:
        # with what the import has started, and with us
        process.signal_group(os.getpid(), signal.SIGKILL)
    return 0


def _prepare(prepare: Callable[[], object], output: Output) -> None:
    """Do what can be done ahead. Where that fails, it is done again for the task, which then fails
    with the reason.
    """
    process.die_with_parent(True)  # an import that never ends does not see that the gate has closed
    try:
        prepare()
    except BaseException:  # a module may call sys.exit when it is imported
        output.drop()
    process.die_with_parent(False)


def _rehearse(spool: Spool) -> None:
    """Do in vain what `_get_ready` will do: a fork copies each page when it is first written to,
    and now there is time.
    """
    variables = (
        "BLUEQUE_TASK_ID",
        "BLUEQUE_QUEUE",
        "BLUEQUE_NODE",
        "BLUEQUE_ATTEMPT",
        "BLUEQUE_TASK_DIR",
        "BLUEQUE_PROGRESS",
        "BLUEQUE_CHECKPOINT",
        "BLUEQUE_CHECKPOINT_DIR",
        "BLUEQUE_STOP_FILE",
        "BLUEQUE_MAX_BYTES",
        "BLUEQUE_DEADLINE",
    )
    os.environ.update(dict.fromkeys(variables, ""))
    for name in variables:
        del os.environ[name]
    RunningTask("", {}, "")
    try:
        spool.attempt_at(f"{spool.root}/nothing").read_task()
    except OSError:
        pass


def _get_ready(
    attempt: Attempt, word: Word, output: Output, max_bytes: int
) -> RunningTask | BaseException:
    """Do what can be done while the start is not yet recorded; return the task, or why it cannot
    run.
    """
    try:
        output.send_to(attempt)
        task_id, fields = attempt.read_task()
        task = RunningTask(
            task_id,
            {**fields, "status": "started", "pid": str(os.getpid())},
            attempt.path,
            word.resources,
            max_bytes,
        )
        running_task.begin(task)
        os.environ.update(word.environ)
        os.environ["BLUEQUE_TASK_ID"] = task.id
        os.environ["BLUEQUE_QUEUE"] = task.queue or ""
        os.environ["BLUEQUE_NODE"] = task.node or ""
        os.environ["BLUEQUE_ATTEMPT"] = str(task.attempt)
        os.environ["BLUEQUE_TASK_DIR"] = attempt.path
        os.environ["BLUEQUE_PROGRESS"] = f"{attempt.path}/progress"
        os.environ["BLUEQUE_CHECKPOINT"] = f"{attempt.path}/{checkpoint.VALUE}"
        os.environ["BLUEQUE_CHECKPOINT_DIR"] = f"{attempt.path}/{checkpoint.DIRECTORY}"
        os.environ["BLUEQUE_STOP_FILE"] = f"{attempt.path}/{STOP}"
        # of what a program that it starts may tell
        os.environ["BLUEQUE_MAX_BYTES"] = str(max_bytes)
        os.environ.pop("BLUEQUE_DEADLINE", None)  # of a task in which our listener runs
        # a bar is for people, and it adds up in three days
        os.environ.setdefault("TQDM_MININTERVAL", "5")
        # of what it starts: else its output comes when it ends
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
    except BaseException as error:
        return error
    return task


def _run(
    work_of: Callable[[str], Work],
    task: RunningTask | BaseException,
    attempt: Attempt,
    spare: int,
    time_limit: float | None,
) -> int:
    """spare: a descriptor that is to be closed before the exit record is written."""
    pid = os.getpid()
    try:
        attempt.begin()
        if isinstance(task, BaseException):
            raise task
        if time_limit is not None:
            os.environ["BLUEQUE_DEADLINE"] = f"{time.time() + time_limit:.3f}"
        record = work_of(task.queue or "").run(task, attempt)
    except BaseException as error:  # SystemExit and KeyboardInterrupt end a task too
        record = record_of(
            error, is_asked_to_stop=isinstance(task, RunningTask) and task.should_stop
        )
    if os.getpid() != pid:  # a child that the task has forked, and that came back from it
        return 0
    _flush_files()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    record["cpu_seconds"] = round(sum(one.ru_utime + one.ru_stime for one in used), 3)
    record["memory_peak"] = max(one.ru_maxrss for one in used) * 1024
    try:
        os.close(spare)
    except OSError:  # the task has closed that too
        pass
    attempt.write_exit({**record, "finished": time.time()})
    return 0 if record["status"] == "complete" else 1


def _flush_files() -> None:
    """Write out what the task left in buffers, its own files too: the process ends without what
    Python does at its end.
    """
    files = [
        thing for thing in gc.get_objects() if type(thing) in (io.TextIOWrapper, io.BufferedWriter)
    ]
    for file in [sys.stdout, sys.stderr, *files]:
        try:
            file.flush()
        except (OSError, ValueError, AttributeError):
            # the task has closed or removed it, or the disk is full
            pass
