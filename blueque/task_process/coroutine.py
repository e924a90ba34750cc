"""Run a handler that is a coroutine function. Imported for those only, because asyncio is large."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Any

from blueque.task_process.running_task import RunningTask, heed_sigterm, leave_sigterm


def run(awaitable: Awaitable[Any], task: RunningTask) -> Any:
    """Run the awaitable of a handler to its end and return the result.

    SIGTERM cancels it, unless it has read `should_stop`. If it does not catch CancelledError, the
    process ends by SIGTERM, like that of any other handler.
    """
    stop = _Stop(task)
    heed_sigterm(task, stop)
    try:
        return asyncio.run(_main(awaitable, stop))
    except BaseException as error:
        if stop.is_asked and isinstance(error, asyncio.CancelledError):
            _end_by_sigterm()
        error.with_traceback(_from_the_handler_on(error.__traceback__))
        raise
    finally:
        if not task.reads_should_stop:
            leave_sigterm(stop)


class _Stop:
    """What SIGTERM does while the coroutine runs. Called in the main thread."""

    def __init__(self, task: RunningTask) -> None:
        self._task = task
        self._running: asyncio.Task[Any] | None = None
        self.is_asked = False

    def __call__(self) -> None:
        if self.is_asked:
            return  # a second cancellation would end what the first one has the handler clean up
        self.is_asked = not self._task.reads_should_stop
        self._task.ask_to_stop()
        if self.is_asked and self._running is not None and not self._running.done():
            # Not `cancel` alone: the loop may wait for something that never comes.
            self._running.get_loop().call_soon_threadsafe(self._running.cancel)

    def begin(self) -> None:
        """Remember the running coroutine. Raises CancelledError if the signal came before."""
        self._running = asyncio.current_task()
        if self.is_asked:
            raise asyncio.CancelledError


async def _main(awaitable: Awaitable[Any], stop: _Stop) -> Any:
    stop.begin()
    return await awaitable


def _from_the_handler_on(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of asyncio, or all of it if it has none of ours."""
    frame = trace
    while frame is not None and frame.tb_frame.f_code is not _main.__code__:
        frame = frame.tb_next
    return frame or trace


def _end_by_sigterm() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or replaced by another object
            stream.flush()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
