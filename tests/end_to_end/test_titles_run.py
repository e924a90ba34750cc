"""What `ps` shows of the processes of a listener."""

from __future__ import annotations

from pathlib import Path

import pytest
from handlers import WORK, begin, ended, let_go, pid_of
from running import keeper_of, until


def shown(pid: int) -> tuple[str, str]:
    """Return the name and the command of a process."""
    place = Path("/proc") / str(pid)
    command = (place / "cmdline").read_text().rstrip("\0").replace("\0", " ")
    return (place / "comm").read_text().strip(), command


@pytest.mark.parametrize("option", [(), ("--reuse", "2")], ids=repr)
def test_ps_tells_the_processes_of_a_listener_and_their_tasks_apart(programs, option):
    programs.write(WORK)
    listener = programs.listener("work:run", *option)

    task = begin(programs)

    name, command = shown(listener.pid)
    assert name == "blueque-master" and "blueque.node.main work" in command
    slot = pid_of(task.node)
    assert shown(slot) == ("blueque-slot", "blueque: slot of work")
    assert shown(keeper_of(slot))[0] == "blueque-keeper"
    assert shown(task.pid) == ("blueque-task", f"blueque: task {task.id} of work")
    let_go(programs)
    assert ended(programs.client, task.id).status == "complete"
    if option:
        until(lambda: task.id not in shown(task.pid)[1], what="the command of one that waits")
