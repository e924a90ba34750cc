"""A log that is not read: lines are dropped and counted, and the program goes on."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import termios
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from handlers import beat_of
from running import PATIENCE, outcome, until

from blueque.system.process import host_name

LINES = 5000
WHY = "standard error could not take them"
DROPPED = rf"drop lines=(\d+): {WHY}"
TALKER = """
    import logging, os, sys

    from blueque.system.log_format import log_to_stderr

    {before}
    log_to_stderr()
    log = logging.getLogger("blueque")
    for number in range({lines}):
        log.info("line %d", number)
    print("full", flush=True)
    sys.stdin.read()
    if not os.fork():
        log.info("from a child")
        os._exit(0)
    os.wait()
    log.info("again")
"""


class Log(NamedTuple):
    """A standard error for a program, with the end at which it can be read."""

    kind: str
    ours: int
    theirs: int

    def make_room(self) -> str:
        """Have it take lines again; return what was read for that."""
        if self.kind == "terminal":
            termios.tcflow(self.theirs, termios.TCOON)
            return ""
        return os.read(self.ours, 65536).decode()

    def read(self, until: str, text: str = "") -> list[str]:
        """Read on from the text until the words have come; return the lines without times."""
        while until not in text:
            assert select.select([self.ours], [], [], PATIENCE)[0], text
            text += os.read(self.ours, 65536).decode()
        return [line.partition(" ")[2] for line in text.splitlines()]

    def fill(self) -> None:
        os.set_blocking(self.theirs, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.theirs, b"x" * 4095 + b"\n")
        os.set_blocking(self.theirs, True)


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Log]:
    """Yield a standard error of which nothing is read."""
    if kind == "pipe":
        log = Log(kind, *os.pipe())
    elif kind == "terminal":
        log = Log(kind, *os.openpty())
        termios.tcflow(log.theirs, termios.TCOOFF)  # what Ctrl-S does
    else:
        ours, theirs = socket.socketpair()
        log = Log(kind, ours.detach(), theirs.detach())
    try:
        yield log
    finally:
        os.close(log.ours)
        os.close(log.theirs)


NOT_OURS = "os.open = lambda *_: (_ for _ in ()).throw(PermissionError())"


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        ("pipe", ""),
        ("terminal", ""),
        ("socket", ""),
        # As of another user, who lets nobody open it.
        ("pipe", NOT_OURS),
        ("terminal", NOT_OURS),
    ],
)
def test_what_cannot_be_written_is_dropped_and_the_next_line_says_how_much(programs, kind, before):
    read, go_on = os.pipe()
    with opened(kind) as log:
        script = TALKER.format(before=before, lines=LINES)
        program = programs.script(script, stdin=read, stderr=log.theirs)
        os.close(read)
        until(lambda: program.printed or not program.is_running, what="the last of the lines")

        # Shared with other writers, who do not expect that a write is refused.
        assert os.get_blocking(log.theirs)
        text = log.make_room()
        os.close(go_on)
        *lines, child, about, last = log.read("again", text)

        assert program.wait() == 0
    dropped = re.fullmatch(DROPPED, about)
    # A child has nothing to say of what its parent could not.
    assert dropped and (child, last) == ("from a child", "again")
    assert lines == [f"line {number}" for number in range(LINES - int(dropped[1]))]


def test_a_line_that_a_pipe_takes_in_parts_only_comes_whole(programs):
    read, go_on = os.pipe()
    with opened("pipe") as log:
        program = programs.script(
            """
            import logging, sys

            from blueque.system.log_format import log_to_stderr

            log_to_stderr()
            log = logging.getLogger("blueque")
            for number in range(100):
                log.info("line %d %s", number, str(number) * 10_000)
            print("full", flush=True)
            sys.stdin.read()
            log.info("again")
        """,
            stdin=read,
            stderr=log.theirs,
        )
        os.close(read)
        until(lambda: program.printed or not program.is_running, what="the last of the lines")
        text = log.make_room()
        os.close(go_on)
        *lines, about, last = log.read("again", text)

    assert (about, last) == (f"drop lines={100 - len(lines)}: {WHY}", "again")
    assert lines
    assert lines == [f"line {number} {str(number) * 10_000}" for number in range(len(lines))]


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_listener_whose_log_is_not_read_beats_and_runs_tasks(programs, kind):
    programs.write("def run(task):\n    return 1\n")
    with opened(kind) as log:
        log.fill()
        listener = programs.listener("work:run", "--beat", "0.2s", stderr=log.theirs)
        (slot,) = listener.slots()
        queue, node = programs.client.get_queue("work"), f"{host_name()}_{slot}"

        for _ in range(3):
            assert outcome(programs.client, queue.enqueue("")).result == 1
        beats = beat_of(programs.client, "work", node)
        until(lambda: beat_of(programs.client, "work", node) >= beats + 3, what="beats")
        listener.send(signal.SIGUSR1)  # the interpreter writes stacks
        listener.send(signal.SIGHUP)
        new = until(lambda: [pid for pid in listener.slots() if pid != slot], what="a new slot")[0]
        node = f"{host_name()}_{new}"  # what it says of its registration has to be dropped, too
        until(lambda: beat_of(programs.client, "work", node) >= 1, what="its beats")

        log.make_room()
        programs.client.get_queue("work").enqueue("")
        told = "\n".join(log.read("complete task="))

        assert re.search(rf"^{DROPPED}\nreserve task=", told, re.M), told
        assert listener.stop() == 0


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_modules_that_print_can_be_imported_when_the_log_is_not_read(programs, kind):
    for name in ("work", "large"):
        programs.write(
            """
            import sys

            for number in range(100):
                print("importing", number, file=sys.stderr)

            def run(task):
                return 1
        """,
            f"{name}.py",
        )
    with opened(kind) as log:
        log.fill()
        listener = programs.listener("work:run", "--preload", "large", stderr=log.theirs)

        assert outcome(programs.client, programs.client.get_queue("work").enqueue("")).result == 1
        assert listener.stop() == 0


@pytest.mark.parametrize("kind", ["pipe", "terminal", "socket"])
def test_a_task_does_not_hold_the_log_of_its_listener(programs, kind):
    programs.write("""
        import os

        def run(task):
            found = []
            for number in os.listdir("/proc/self/fd"):
                try:
                    found.append(os.fstat(int(number))[1:3])
                except OSError:
                    pass                               # the directory itself
            return found
    """)
    with opened(kind) as log:
        programs.listener("work:run", stderr=log.theirs)
        task = outcome(programs.client, programs.client.get_queue("work").enqueue(""))

        assert task.result and list(os.fstat(log.theirs)[1:3]) not in task.result


def test_a_scheduler_whose_log_is_not_read_puts_tasks_in_line(programs):
    with opened("pipe") as log:
        log.fill()
        scheduler = programs.scheduler(stderr=log.theirs)
        task_id = programs.client.get_queue("work").schedule("", time.time() + 0.3)

        until(lambda: programs.client.get_task(task_id).status == "pending", what="its turn")

        log.make_room()
        later = programs.client.get_queue("work").schedule("", time.time() + 0.3)
        told = "\n".join(log.read(later))
        assert re.search(rf"^{DROPPED}\nenqueue_due ", told, re.M), told
        assert scheduler.stop() == 0


def test_a_closed_log_does_no_harm(programs):
    programs.write("def run(task):\n    return 1\n")
    with opened("pipe") as log:
        listener = programs.listener("work:run", stderr=log.theirs)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, log.ours)  # which closes the pipe
        os.close(nothing)

        assert outcome(programs.client, programs.client.get_queue("work").enqueue("")).result == 1
        assert listener.stop() == 0
