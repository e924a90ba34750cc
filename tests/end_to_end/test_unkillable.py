"""A task that SIGKILL does not end: its processes are frozen, as they are when a file server is gone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import in_process
import pytest
from handlers import WORK, begin, ended
from running import clean_environment, patched, until

from blueque.text.terminal import short_id

FREEZERS = Path("/sys/fs/cgroup/freezer")  # of version 1: one of version 2 lets SIGKILL through


@pytest.fixture
def frozen(programs):
    """Return what freezes a process, and thaws them all."""
    cgroup = FREEZERS / f"blueque-test-{os.getpid()}"
    if not os.access(FREEZERS, os.W_OK):
        pytest.skip("needs the right to freeze processes by a cgroup of version 1")
    cgroup.mkdir()

    def change(state, pid=None):
        if pid is not None:
            (cgroup / "cgroup.procs").write_text(str(pid))
        (cgroup / "freezer.state").write_text(state)

    yield change
    change("THAWED")
    until(lambda: not (cgroup / "cgroup.procs").read_text(), what="their ends")
    cgroup.rmdir()


def test_a_task_that_sigkill_does_not_end_is_pointed_at_until_it_has_ended(programs, frozen):
    programs.write(WORK)
    patch = patched({"node.attempt_watch.STUCK": 0.2, "node.attempt_watch.SAMPLE": 0.2})
    listener = programs.listener(
        "work:run", "--beat", "0.2s", "--lease", "2s", grace="0", environ=patch
    )
    task = begin(programs)

    def says(*words):
        return in_process.run(
            [*words], clean_environment() | {"BLUEQUE_REDIS_URL": programs.url}
        ).stdout

    frozen("FROZEN", task.pid)
    programs.client.get_queue("work").cancel(task.id)

    listener.says(f"SIGKILL does not end task={task.id} pid={task.pid}, whose state is D")
    until(lambda: programs.client.get_inspector().nodes()[0].stuck, what="a beat")
    words = "the process is still there (state D). It waits in the kernel, for example for a file server"
    assert words in says("show", task.id)
    stuck = json.loads(says("show", task.id, "--json"))["item"]["stuck"]
    assert (stuck["state"], stuck["since_seconds"]) == ("D", pytest.approx(time.time(), abs=600))
    (reason,) = [
        each["sentence"]
        for each in json.loads(says("why", task.id, "--json"))["reasons"]
        if each["code"] == "stuck"
    ]
    assert reason.startswith("Its listener killed it ") and words in reason
    assert f"{short_id(task.id)}: its listener killed it" in " ".join(says("status").split())

    frozen("THAWED")

    assert ended(programs.client, task.id).status == "cancelled"
    until(lambda: not programs.client.get_inspector().nodes()[0].stuck, what="a beat")
