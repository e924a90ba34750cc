"""`blueque dev` as a program: what it starts, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import BLUEQUE, ROOT, is_there, outcome, until

from blueque import Client

WORK = """
import blueque, pathlib, time

@blueque.handler("quick")
def quick(task, value):
    return value

@blueque.handler("slow")
def slow(task, value):
    pathlib.Path("began").touch()
    while True:
        time.sleep(0.1)
"""
Dev = Callable[..., "Running"]


class Running:
    """A running `blueque dev`, and the Redis that it has started."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        environ = {name: text for name, text in os.environ.items() if "REDIS_URL" not in name}
        environ |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.said = ""
        self.program = subprocess.Popen(
            [*BLUEQUE, "dev", *arguments],
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        found = re.search(r"redis://127\.0\.0\.1:\d+/0", self.read("export BLUEQUE_REDIS_URL"))
        assert found is not None
        self.client = Client(found[0])

    def read(self, wanted: str) -> str:
        """Return the first line that has this text, also one that was read already: the lines of
        several programs come in any order.
        """
        assert self.program.stderr is not None
        for line in self.said.splitlines():
            if wanted in line:
                return line
        for line in self.program.stderr:
            self.said += line
            if wanted in line:
                return line
        raise AssertionError(f"{wanted!r} was not said, but: {self.said}")

    def end(self) -> int:
        """Wait until it has ended, and return its exit code."""
        self.said += self.program.communicate(timeout=30)[1]
        self.client.close()
        return self.program.returncode


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    (tmp_path / "work.py").write_text(WORK)
    begun: list[Running] = []

    def dev(*arguments: str) -> Running:
        begun.append(Running(tmp_path, *arguments))
        return begun[-1]

    yield dev
    for one in begun:
        if one.program.poll() is None:
            one.program.kill()
            one.end()


def test_the_first_ctrl_c_names_what_runs_and_the_second_ends_it_for_good(dev, tmp_path):
    first = dev("work", "--slots", "1")
    done = first.client.get_queue("quick").enqueue({"scene": 1})
    assert outcome(first.client, done, 60).result == {"scene": 1}
    task = first.client.get_queue("slow").enqueue({}, key="night")
    until((tmp_path / "began").exists)

    first.program.send_signal(signal.SIGINT)
    assert "night of slow" in first.read("These run on")
    first.read("SIGINT: taking nothing new")
    assert first.client.get_task(task).status == "started"
    until(lambda: _again(first), what="the end")
    assert first.end() == 0
    assert "BLUEQUE_REDIS_URL)" not in first.said  # no such variable was set
    page = first.read("/login#").strip().partition("#")[2]

    (tmp_path / "began").unlink()
    second = dev("work", "--slots", "1")
    last = second.client.get_queue("quick").enqueue({"scene": 2})
    assert outcome(second.client, last, 60).status == "complete"
    assert second.client.get_task(done).result == {"scene": 1}
    assert second.client.get_task(task).status == "failed"
    assert not (tmp_path / "began").exists()  # nobody has allowed a second start
    assert second.read("/login#").strip().endswith(f"#{page}")  # an open page goes on
    assert (tmp_path / ".blueque" / "token").stat().st_mode & 0o077 == 0
    second.program.send_signal(signal.SIGTERM)
    assert second.end() == 0


def _again(running: Running) -> bool:
    """Press Ctrl-C once more: the listener takes two within a second for one."""
    running.program.send_signal(signal.SIGINT)
    try:
        running.program.wait(5.0)  # one more while it ends would end it as a signal does
    except subprocess.TimeoutExpired:
        return False
    return True


def test_a_changed_file_counts_from_the_next_task_on(dev, tmp_path):
    running = dev("work", "--slots", "1")
    task = running.client.get_queue("quick").enqueue(1)
    assert outcome(running.client, task, 60).result == 1

    (tmp_path / "work.py").write_text(WORK.replace("return value", "return [value, 'new']"))
    running.read("the listener restarts")

    def new():
        task = running.client.get_queue("quick").enqueue(2)
        return outcome(running.client, task, 60).result == [2, "new"]

    until(new, 60)
    running.program.send_signal(signal.SIGINT)
    assert running.end() == 0


def test_nothing_is_left_when_it_is_killed_and_two_in_one_directory_are_refused(dev, tmp_path):
    running = dev("work")
    inspector = running.client.get_inspector()
    redis = int(inspector.overview().server["process_id"])
    slots = until(lambda: [int(node.id.rpartition("_")[2]) for node in inspector.nodes()])
    refused = subprocess.run(
        [*BLUEQUE, "dev", "work"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert refused.returncode == 5
    assert f"as process {running.program.pid}" in refused.stderr

    running.client.get_queue("slow").enqueue({})
    until((tmp_path / "began").exists)

    running.program.kill()
    running.end()
    for pid in (redis, *slots):
        until(lambda pid=pid: not is_there(pid), what=f"the end of process {pid}")


def test_when_its_redis_is_killed_it_says_so_and_ends(dev):
    running = dev()
    redis = int(running.client.get_inspector().overview().server["process_id"])

    os.kill(redis, signal.SIGKILL)

    assert "killed by SIGKILL" in running.read("Redis has ended by itself")
    assert running.end() == 1
    assert "Redis is saved" not in running.said
