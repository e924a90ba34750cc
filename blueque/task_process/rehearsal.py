"""Run in the fork server, before it forks any, what each task process runs; and once in a task process
that waits.

Python makes the code of a function quicker when it has run several times. Quicker code writes to
fewer pages of memory, and each page that a forked process writes to is copied. A task process runs
its own code once.

A task process that has run it while it waited has these copies already, and begins its task sooner.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from blueque.spool.task_spool import Blank, TaskSpool
from blueque.task_process import handlers, handshake, main, running_task
from blueque.task_process.handshake import Assignment
from blueque.task_process.running_task import RunningTask

TIMES = 10  # Python begins with it at the eighth
_QUEUE = "rehearsal"
_FIELDS = {
    "queue": _QUEUE,
    "node": "rehearsal",
    "attempt": "1",
    "parameters": '{"text": ""}',
    "parameters_encoding": "json",
}


def rehearse(spool: TaskSpool, times: int = TIMES) -> None:
    """Run tasks that do nothing, as a task process does, and leave nothing of that behind.

    Only where the parent is the slot.
    """
    work = handlers.handler(lambda: _do_nothing, spool.max_bytes, lambda: None)
    time.sleep(0)  # the loader of libraries looks a function up at its first call
    with contextlib.suppress(OSError), _directory(spool) as path, _left_as_it_was(spool):
        spool.is_synced = False
        for _ in range(times):
            files = [
                os.open(f"{path}/{stream}", os.O_RDWR | os.O_APPEND)
                for stream in ("stdout", "stderr")
            ]
            theirs, ours = handshake.make()
            try:
                handshake.assign(ours, Assignment(path, {}, {}, task=(_QUEUE, _FIELDS)))
                handshake.begin(ours)
                origin = main.Origin(Blank("", "", files), is_rehearsal=True)
                main.live(lambda _: work, spool, theirs, _QUEUE, origin=origin)
            finally:
                os.close(ours)


def practise(spool: TaskSpool) -> None:
    """Run one task that does nothing in a task process that waits, unless what it has imported could
    notice: a thread would see the variables of that task.
    """
    if len(os.listdir("/proc/self/task")) > 1:
        return
    with contextlib.suppress(Exception):  # the import may have replaced anything
        rehearse(spool, 1)


def _do_nothing(task: RunningTask) -> None:
    pass


@contextlib.contextmanager
def _directory(spool: TaskSpool) -> Iterator[str]:
    """Provide the directory of an attempt; it is gone at the end. Raises OSError."""
    blank = spool.make_blank(str(os.getpid()))
    if blank is None:
        raise FileNotFoundError(spool.root)
    blank.close()
    try:
        yield blank.path
    finally:
        for name in os.listdir(blank.path):
            os.unlink(f"{blank.path}/{name}")
        os.rmdir(blank.path)


@contextlib.contextmanager
def _left_as_it_was(spool: TaskSpool) -> Iterator[None]:
    """Undo what a task process changes in itself."""
    environ, streams = dict(os.environ), [os.dup(number) for number in (1, 2)]
    try:
        yield
    finally:
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
            os.close(stream)
        for name in os.environ.keys() - environ.keys():
            del os.environ[name]
        for name, value in environ.items():  # not all: a library may know others than Python does
            if os.environ.get(name) != value:
                os.environ[name] = value
        spool.is_synced = True
        running_task.begin(None)
        main.TITLE.restore()
