"""The task process, from the fork to the exit record. It uses files only, never Redis.

`main` is the whole life of the process; handlers.py has the two kinds of handler.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from blueque.errors import BluequeError, PayloadRefused
from blueque.model.client_settings import payloads_of
from blueque.model.encoding import is_sealed
from blueque.model.outcomes import RetryLater
from blueque.spool.attempt import CWD, Attempt
from blueque.spool.outcome_record import CANNOT_WRITE, Record, record_of
from blueque.spool.task_spool import TaskSpool
from blueque.system import process
from blueque.system.title import Title
from blueque.task_process import process_end, redirect, running_task
from blueque.task_process.handlers import Work
from blueque.task_process.handshake import Assignment, Handshake
from blueque.task_process.redirect import Output
from blueque.task_process.reuse import Setting, Usage
from blueque.task_process.running_task import RunningTask, environment

NAME = "blueque-task"  # of task processes, for `ps -o comm`
SIGNALS = (
    signal.SIGTERM,
    signal.SIGUSR2,
    signal.SIGQUIT,
    signal.SIGINT,
    signal.SIGCHLD,
    signal.SIGTTOU,
)
TITLE = Title()  # of this process; the keeper finds out once where it is
# What a task process does, as its keeper sees it: it waits for a task, it has begun one, or it has
# written the exit record of one.
WAITS, BEGUN, RECORDED = range(3)
NO_KEY = 2.0  # seconds until a task whose key is gone runs again
# What is blocked when a task process is forked: it is for the parent, or comes too early.
HELD_BACK = (*SIGNALS, signal.SIGHUP, signal.SIGUSR1)


def settle(max_bytes: int) -> None:
    """Set up input, output and variables that are the same for all task processes.

    Runs here or in the process that forks them. max_bytes: the limit for results and checkpoints of
    a program.
    """
    # SIGUSR1 warns of a limit; its default action would end the task
    signal.signal(signal.SIGUSR1, lambda *_: None)
    redirect.settle()
    os.environ["BLUEQUE_MAX_BYTES"] = str(max_bytes)
    for name in ("BLUEQUE_DEADLINE", *running_task.OPTIONAL):
        os.environ.pop(name, None)  # inherited if the listener itself runs in a task
    # a progress bar that is drawn ten times a second fills the log in three days
    os.environ.setdefault("TQDM_MININTERVAL", "5")
    # else the output of Python programs that it starts comes when they end
    os.environ.setdefault("PYTHONUNBUFFERED", "1")


def live(
    work_of: Callable[[str], Work],
    spool: TaskSpool,
    handshake: int,
    prepared: str | None,
    keeper: int,
    say: Callable[[int], object],
    files: Sequence[Any] = (),
    is_rehearsal: bool = False,
) -> int:
    """Wait for a task, run it, write the exit record; return the exit status.

    work_of: returns how to run the tasks of a queue. handshake: a descriptor, see handshake.py.
    prepared: the queue whose handler to import before there is a task.
    keeper: the pid of our parent. say: called with WAITS, BEGUN or RECORDED when that changes.
    files: that the keeper had open; the task may write to them.
    is_rehearsal: this is no task process, see rehearsal.py.
    """
    is_warm, pid = prepared is not None, os.getpid()
    if not is_rehearsal:
        os.setsid()
    listener, output, blank = Handshake(handshake), Output(), spool.make_blank(str(pid))
    if blank is not None:
        blank.give_to(pid)
    if blank is not None or is_warm:
        output.keep(None if blank is None else blank.files)
    if prepared is not None and (prepare := work_of(prepared).prepare) is not None:
        # an import that never returns does not see that the handshake is closed
        process.die_with_parent(True)
        if os.getppid() != keeper:
            return _leave(is_warm)
        _prepare(prepare, output)
        process.die_with_parent(False)
        if os.getpid() != pid:  # a child that the import forked has returned here
            return 0
    setting: Setting | None = None
    while True:
        assignment = listener.assignment()
        if assignment is None:
            return _leave(is_warm)
        if setting is None and assignment.may_rest:
            setting = Setting()
        elif setting is not None:
            setting.begin()
        attempt = spool.attempt_at(assignment.path)
        task = _get_ready(attempt, assignment, output, spool.max_bytes)
        if blank is not None and not output.is_in_place:
            spool.remove_blank(pid)  # the listener has looked for it too early
        if not listener.may_begin(assignment.may_rest):
            return _leave(is_warm)
        say(BEGUN)
        status, may_rest, is_plain = _run(work_of, task, attempt, assignment, setting, say, files)
        if os.getpid() != pid:  # a child that the task forked has returned here
            return 0
        may_rest = may_rest and assignment.may_rest
        is_last = setting is None or setting.threads or not may_rest
        if is_last and not is_plain and not is_rehearsal:
            process_end.finish(files)
        if setting is None or not may_rest:
            return status
        say(WAITS)
        if not _rest(listener, setting, attempt):
            return status
        blank, is_warm = None, True
        output.forget()


def _rest(listener: Handshake, setting: Setting, attempt: Attempt) -> bool:
    """Prepare for another task, and say so. False: this process takes no other task."""
    try:
        TITLE.restore()
        setting.restore()
        listener.let_go()
        return listener.rest(setting.rest(attempt.path))
    except Exception:  # what the task has changed cannot be changed back
        return False


def _leave(is_warm: bool) -> int:
    if is_warm:
        # this process, and all that the import has started
        process.signal_group(os.getpid(), signal.SIGKILL)
    return 0


def _prepare(prepare: Callable[[], object], output: Output) -> None:
    """Import the handler in advance. If that fails, the task tries again and fails with the reason."""
    try:
        prepare()
    except BaseException:  # a module may call sys.exit when it is imported
        output.drop()


def _get_ready(
    attempt: Attempt, assignment: Assignment, output: Output, max_bytes: int
) -> RunningTask | BaseException:
    """Do what can be done before the start is recorded. Return the task, or why it cannot run."""
    try:
        output.send_to(attempt)
        task_id, fields = assignment.task or attempt.read_task()
        fields = _opened(task_id, fields)
        fields["status"], fields["pid"] = "started", str(os.getpid())
        path = attempt.path
        task = RunningTask(task_id, fields, path, assignment.resources, max_bytes)
        running_task.begin(task)
        TITLE.show(f"blueque: task {task_id} of {fields.get('queue', '')}")
        variables = {**assignment.environ, **environment(task_id, fields, path)}
        environ = os.environ
        for name, value in variables.items():
            environ[name] = value
        attempt.open_exit()
    except PayloadRefused as error:
        # Our listener had the key when it took the task, or its processes read another file than it does.
        return error if error.is_damaged else RetryLater(NO_KEY, str(error))
    except BaseException as error:
        return error
    return task


def _opened(task_id: str, fields: dict[str, str]) -> dict[str, str]:
    """Return the fields of a task with plain parameters and a plain context. Raises PayloadRefused."""
    if not is_sealed(fields.get("parameters_encoding")) and not is_sealed(fields.get("context")):
        return fields
    from blueque.model.payloads import opened  # here: few are encrypted

    return opened(task_id, fields)


def _record_of(error: BaseException, task: RunningTask | BaseException) -> Record:
    """Return the record of an error of a task, or of what prevents the task from running."""
    if error is task and isinstance(error, PayloadRefused):
        kind = type(error).__name__
        return {"status": "failed", "error": str(error), "error_type": kind, "retry": "never"}
    is_asked = isinstance(task, RunningTask) and task.should_stop
    return record_of(error, is_asked_to_stop=is_asked)


def _as_stored(task: RunningTask | BaseException, assignment: Assignment, record: Record) -> Record:
    """Return an exit record as it is stored in Redis."""
    payloads = payloads_of({})
    if payloads is None or isinstance(task, BaseException):
        return record
    encoding = None if assignment.task is None else assignment.task[1].get("parameters_encoding")
    try:
        return payloads.record(task.id, task.queue or "", encoding, record)
    except BluequeError:  # the listener does it, with the keys that it has read
        return record


def _run(
    work_of: Callable[[str], Work],
    task: RunningTask | BaseException,
    attempt: Attempt,
    assignment: Assignment,
    setting: Setting | None,
    say: Callable[[int], object],
    files: Sequence[Any],
) -> tuple[int, bool, bool]:
    """Run the task and write its exit record. Return the exit status, whether the process is fit
    for another task, and whether it may end without `process_end.finish`.

    setting: of a process that takes several tasks.
    """
    pid, may_rest = os.getpid(), True
    work: Work | None = None
    usage = Usage() if setting is None else setting.usage
    try:
        attempt.begin(usage.before)
        if isinstance(task, BaseException):
            raise task
        work = work_of(task.fields.get("queue", ""))
        if setting is not None and work.prepare is not None:
            setting.import_handler(work.prepare)
        if assignment.time_limit is not None:
            os.environ["BLUEQUE_DEADLINE"] = f"{time.time() + assignment.time_limit:.3f}"
        if assignment.has_own_cwd:
            _enter_own_cwd(attempt, work)
        record = work.run(task, attempt)
    except BaseException as error:  # SystemExit and KeyboardInterrupt end a task too
        record = _record_of(error, task)
        may_rest = isinstance(error, Exception | SystemExit) and not isinstance(error, MemoryError)
    if os.getpid() != pid:  # a child that the task forked has returned here
        return 0, False, True
    left, is_plain = process_end.NOTHING, False
    try:
        left = process_end.wait()
        if isinstance(task, RunningTask):
            task.disconnect()
        is_plain = not process_end.flush(files)
        record |= usage.measure()
    except BaseException:  # a signal, or what the task has made of these functions
        process_end.show_error()
        may_rest = False
    if setting is not None:
        setting.threads = left.threads
    record["finished"] = time.time()
    if not _write_exit(attempt, _as_stored(task, assignment, record)):
        return 1, False, is_plain
    say(RECORDED)
    if work is not None and work.after is not None and isinstance(task, RunningTask):
        work.after(task, record)
        task.disconnect()
        is_plain = False
    status = 0 if record["status"] == "complete" else 1
    return status, may_rest and not left.processes, is_plain


def _write_exit(attempt: Attempt, record: Record) -> bool:
    """Write the exit record. If that fails, print it on standard error and return False."""
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        attempt.write_exit(record)
    except OSError as error:
        said = record.get("traceback") or record.get("error") or f"result: {record.get('result')}"
        print(f"{said}\n{CANNOT_WRITE} {error} --", file=sys.stderr, flush=True)
        return False
    return True


def _enter_own_cwd(attempt: Attempt, work: Work) -> None:
    """Change to the working directory of the attempt.

    It follows the import: a handler that was imported in advance has seen that of the listener.
    """
    if work.prepare is not None:
        work.prepare()
    directory = f"{attempt.path}/{CWD}"
    os.chdir(directory)
    os.environ["PWD"] = directory
