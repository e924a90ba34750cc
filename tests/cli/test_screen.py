"""blueque status --watch on a terminal of its own: drawn again and again, left as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from dependent import block
from running import until
from test_cli import NODE, PROGRAM, enqueue, start, unused_url
from transactions import protocol

ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"
# A shell that has jobs, and takes the first one up again when somebody presses Enter.
SHELL = ["sh", "-c", 'set -m; "$@"; read line; fg > /dev/null', "sh"]


class Seen:
    """A program on a terminal, and what it has drawn so far."""

    def __init__(self, environ, *arguments, shell=()):
        self.ours, theirs = pty.openpty()
        self.theirs = os.dup(theirs)
        self.resize(24, 80)
        self.before = termios.tcgetattr(theirs)
        environ = {name: value for name, value in environ.items() if name != "COLUMNS"}
        self.program = subprocess.Popen(
            [*shell, *PROGRAM, *arguments],
            env=environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.drawn = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def shows(self, *words):
        """Wait until the newest screen has all these words, and return it."""

        def look():
            while select.select([self.ours], [], [], 0)[0]:
                self.drawn += os.read(self.ours, 65536)
            *_, newest = self.drawn.split(b"\x1b[H")
            return newest.decode() if all(word.encode() in newest for word in words) else None

        return until(look, what=f"{words} on the screen")

    def leave(self, key):
        os.write(self.ours, key)
        return self.left()

    def left(self):
        code = self.program.wait(15)
        self.shows(LEAVES.decode())
        assert self.is_as_before()
        return code

    def is_as_before(self):
        return termios.tcgetattr(self.theirs) == self.before

    def close(self):
        self.program.kill()
        self.program.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def on_screen(environ):
    opened = []

    def on_screen(*arguments, **more):
        opened.append(Seen(environ, *arguments, **more))
        return opened[-1]

    yield on_screen
    for seen in opened:
        seen.close()


@pytest.fixture
def running(redis):
    """A task that runs, an hour old, and one that waits."""
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())
    enqueue(redis, "runs-1")
    start(redis, "runs-1")
    redis.read(("HSET", "blueque_task_runs-1", "started", time.time() - 3600))
    enqueue(redis, "waits-1", queue="audio")


def progress(redis, text):
    redis.read(("HSET", "blueque_task_runs-1", "progress", text, "progress_at", time.time()))


def rows_of(screen, columns):
    """Return the rows that a terminal shows, on which lines that are too long are cut, as VT100 and
    its kin do that.
    """
    rows, column = [[" "] * columns], 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r?\n|.)", screen):
        if part in ("\n", "\r\n"):
            rows, column = [*rows, [" "] * columns], 0
        elif part in ("\x1b[K", "\x1b[J"):
            at = min(column, columns - 1)  # behind the last column the cursor stands on it
            rows[-1][at:] = [" "] * (columns - at)
        elif part and not part.startswith("\x1b"):
            rows[-1][min(column, columns - 1)] = part
            column += 1
    return ["".join(row) for row in rows if any(cell != " " for cell in row)]


def test_a_column_for_blocked_tasks_comes_when_there_are_any(on_screen, redis, running):
    seen = on_screen("status", "--watch", "0.2")
    assert "BLOCKED" not in seen.shows("audio")

    block(redis, "child-1", "waits-1", "video")

    screen = seen.shows("BLOCKED")
    rows = [row.split() for row in rows_of(screen, 80) if row.startswith(("QUEUE", "video"))]
    assert rows[0][:4] == ["QUEUE", "BLOCKED", "SCHED", "PEND"] and rows[1][:2] == ["video", "1"]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_last_column_is_whole_in_a_table_that_fills_the_terminal(
    on_screen, redis, running, columns
):
    progress(redis, "450/900 frames " + "of many words " * 9)
    seen = on_screen("status", "--watch", "60")
    seen.resize(24, columns)
    screen = until(
        lambda: (
            (found := seen.shows("runs-1"))
            and any(
                row.startswith("runs-1") and len(row.rstrip()) == columns
                for row in rows_of(found, 200)
            )
            and found
        )
    )

    rows = rows_of(screen, columns)
    (at,) = (at for at, row in enumerate(rows) if row.startswith("runs-1"))
    titles, row = rows[at - 1 : at + 1]
    assert titles.endswith("  SIGN") and re.search(r"  \d\.\d s$", row), rows


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_it_shows_what_runs_and_leaves_the_terminal_as_it_was(on_screen, redis, running, key):
    progress(redis, "450/900 frames")
    seen = on_screen("status", "--watch", "0.2")

    seen.shows("audio", "video", "runs-1", "50 %", "450/900 frames", "~1 h")
    progress(redis, "45/50 parts")
    seen.shows("90 %", "45/50 parts")
    code = seen.leave(key)

    assert code == 0
    assert seen.drawn.count(ENTERS) == seen.drawn.count(LEAVES) == 1


def test_nothing_is_estimated_of_a_task_whose_listener_is_silent(on_screen, redis, running, run):
    progress(redis, "450/900 frames")
    seen = on_screen("status", "--watch", "0.2")
    seen.shows("~1 h")

    redis.read(("ZADD", "blueque_nodes_video", time.time() - 3600, NODE))

    until(lambda: "~1 h" not in seen.shows("450/900 frames"), what="no estimate")
    assert "450/900 frames" in run("status").stdout and "~1 h" not in run("status").stdout
    assert "450/900 frames" in run("show", "runs-1").stdout
    assert "left" not in run("show", "runs-1").stdout


def test_ctrl_z_gives_the_terminal_back_and_fg_draws_anew(on_screen, redis, running):
    seen = on_screen("status", "--watch", "60", shell=SHELL)
    seen.shows("runs-1")

    os.write(seen.ours, b"\x1a")
    seen.shows(LEAVES.decode())
    until(seen.is_as_before, what="the terminal as it was")
    progress(redis, "45/50 parts")
    os.write(seen.ours, b"\n")

    seen.shows("90 %", "45/50 parts")
    assert not seen.is_as_before()
    assert seen.leave(b"q") == 0
    assert seen.drawn.count(ENTERS) == seen.drawn.count(LEAVES) == 2


def test_ctrl_z_where_nobody_could_have_it_go_on_draws_anew(on_screen, redis, running):
    seen = on_screen("status", "--watch", "60")
    seen.shows("runs-1")

    os.write(seen.ours, b"\x1a")
    until(lambda: seen.shows("runs-1") and seen.drawn.count(ENTERS) == 2, what="it drawn again")

    assert seen.leave(b"q") == 0
    assert seen.drawn.count(LEAVES) == 2


def test_a_stop_that_it_is_not_told_of_leaves_it_the_terminal_that_it_needs(
    on_screen, redis, running
):
    seen = on_screen("status", "--watch", "60")
    seen.shows("runs-1")

    seen.program.send_signal(signal.SIGSTOP)
    os.waitpid(seen.program.pid, os.WUNTRACED)
    termios.tcsetattr(seen.theirs, termios.TCSANOW, seen.before)  # as a shell does
    progress(redis, "45/50 parts")
    seen.program.send_signal(signal.SIGCONT)

    seen.shows("90 %", "45/50 parts")
    assert seen.leave(b"q") == 0  # a key alone, without Enter


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(on_screen, redis, running, number):
    seen = on_screen("status", "--watch", "60")
    seen.shows("runs-1")

    seen.program.send_signal(number)

    assert seen.left() == -number


def test_it_follows_the_size_of_the_terminal(on_screen, redis, running):
    for n in range(40):
        enqueue(redis, f"more-{n}", queue=f"q{n:02}")
    seen = on_screen("status", "--watch", "60")
    small = seen.shows("runs-1", "more: blueque status --all")
    assert len(small.splitlines()) <= 24 and "q06" not in small

    seen.resize(50, 120)

    seen.shows("q06", "runs-1")
    assert seen.leave(b"q") == 0


def test_it_goes_on_when_redis_has_been_away(on_screen, own_server, environ):
    environ["BLUEQUE_REDIS_URL"] = own_server.url
    seen = on_screen("status", "--watch", "0.2")
    seen.shows("No queues yet")

    own_server.kill()
    seen.shows("the last status:", "No queues yet")
    own_server.start()

    until(lambda: "the last status" not in seen.shows("No queues yet"), what="a new picture")
    assert seen.leave(b"q") == 0


def test_without_a_terminal_status_is_printed_again(run, begin, redis, running):
    watching = begin("status", "--watch", "0.2")
    heads = [
        line
        for line in (watching.stdout.readline() for _ in range(40))
        if line.startswith("blueque ")
    ]
    watching.send_signal(signal.SIGINT)

    assert len(heads) >= 2
    assert watching.wait(15) == 130
    assert run("status", "--watch", "1", "--check").returncode == 2


def test_in_a_pipe_status_waits_through_an_outage_and_says_so_once(begin, own_server, environ):
    environ["BLUEQUE_REDIS_URL"] = own_server.url
    watching = begin("status", "--watch", "0.2")
    assert watching.stdout.readline().startswith("blueque ")

    own_server.kill()
    assert "; waiting" in watching.stderr.readline()
    own_server.start()

    while not watching.stdout.readline().startswith("blueque "):
        assert watching.poll() is None
    watching.send_signal(signal.SIGINT)
    assert watching.wait(15) == 130 and "waiting" not in watching.stderr.read()


def test_without_a_redis_at_first_it_is_an_error_on_an_untouched_terminal(on_screen, environ):
    environ["BLUEQUE_REDIS_URL"] = unused_url()
    seen = on_screen("status", "--watch")

    assert seen.program.wait(15) == 69
    assert ENTERS not in seen.shows("no Redis at").encode()
