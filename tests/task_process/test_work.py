"""What can be a handler: refused before there is a task, and told of when a task has it all the
same.
"""

from __future__ import annotations

import functools
import signal

import pytest
from running import outcome

from blueque.task_process import handlers
from blueque.task_process.registered import QueueHandler, Settings


class Encoder:
    """A class whose instances are handlers, and its methods."""

    def __call__(self, task):
        return task

    def encode(self, task):
        return task

    @classmethod
    def make(cls, task):
        return task

    @staticmethod
    def check(task):
        return task


class AsyncEncoder:
    async def __call__(self, task):
        return task


async def coroutine(task):
    return task


def generator(task):
    yield task


async def async_generator(task):
    yield task


def plain(task):
    return task


def with_option(task, size=1, *, codec="av1"):
    return task


def of_two(task, size):
    return task


def of_none():
    return None


def with_keyword(task, *, size):
    return task


@functools.wraps(of_two)
def wrapped(*args):
    return of_two(*args, 1)


@functools.wraps(coroutine)
def made_plain(task):
    return task


def decorated(function):
    return QueueHandler(["video"], function, Settings(None, {}))


FIT = {
    "function": plain,
    "options": with_option,
    "lambda": lambda *args: args,
    "instance": Encoder(),
    "method": Encoder().encode,
    "class method": Encoder.make,
    "static method": Encoder.check,
    "partial": functools.partial(of_two, size=1),
    "wrapper": wrapped,
    "wrapper of a coroutine": made_plain,
    "coroutine": coroutine,
    "partial coroutine": functools.partial(coroutine),
    "coroutine instance": AsyncEncoder(),
    "builtin": print,
    "builtin that does not tell": vars,
}
UNFIT = {
    "generator": (generator, "is a generator function"),
    "async generator": (async_generator, "is a generator function"),
    "class": (Encoder, "is a class"),
    "number": (3, "cannot be called"),
    "method of a class": (
        Encoder.encode,
        "takes (self, task) and cannot be called with the task alone",
    ),
    "two": (of_two, "takes (task, size) and cannot be called with the task alone"),
    "none": (of_none, "takes () and cannot be called with the task alone"),
    "keyword": (with_keyword, "takes (task, size) and cannot be called with the task alone"),
}


@pytest.mark.parametrize("handler", FIT.values(), ids=FIT)
def test_what_can_be_called_with_a_task_can_be_a_handler(handler):
    assert handlers.unfit(handler) is None


@pytest.mark.parametrize(
    ("handler", "count"),
    [(plain, 0), (coroutine, 1), (decorated(plain), 0), (decorated(coroutine), 1)],
    ids=["plain", "coroutine", "decorated", "decorated coroutine"],
)
def test_what_runs_coroutines_is_imported_ahead_for_those_alone(handler, count, monkeypatch):
    imported = []
    monkeypatch.setattr(handlers, "import_for_coroutines", lambda: imported.append(True))

    handlers.handler(lambda: handler, 1000).prepare()

    assert len(imported) == count


@pytest.mark.parametrize(("handler", "reason"), UNFIT.values(), ids=UNFIT)
def test_what_cannot_be_a_handler_is_told_why(handler, reason):
    assert (handlers.unfit(handler) or "").startswith(reason)


def test_a_listener_takes_a_new_module_with_an_unfit_handler_neither_at_its_start_nor_later(
    programs,
):
    programs.write("def run(task): return 1")
    listener = programs.listener("work:run")
    slots = listener.slots()
    programs.write("def run(task): yield 1")

    listener.send(signal.SIGHUP)
    listener.says("nothing changes")
    assert listener.slots() == slots
    assert len(listener.lines("the handler work:run is a generator function")) == 1

    other = programs.listener("work:run", is_awaited=False)
    assert other.wait() == 78
    assert other.log.endswith(
        "the handler work:run is a generator function (it has a yield): "
        "a handler runs to its end and returns the result\n"
    )


@pytest.mark.parametrize("kind", ["generator", "async_generator"])
def test_a_task_whose_handler_returns_what_has_not_run_fails_and_says_so(programs, kind):
    programs.write(f"""
        def generator(): yield 1
        async def async_generator(): yield 1

        def run(task):
            return {kind}()
    """)
    programs.listener("work:run")

    task = outcome(programs.client, programs.client.get_queue("work").enqueue(""))

    assert (task.status, task.error_type) == ("failed", "result")
    assert task.error == (
        f"the handler returned a {kind}, which has not run to its end: "
        "a handler runs to its end and returns the result"
    )
