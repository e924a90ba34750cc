"""A slot and its keeper: whatever becomes of the keeper, a task runs once and ends as it ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from handlers import WORK, begin, ended, has_moved, is_sound, ledger, let_go, pid_of
from running import (
    ROOT,
    Listener,
    Programs,
    is_there,
    keeper_of,
    parent_of,
    patched,
    state_of,
    task_processes_of,
    until,
)

from blueque import Task
from blueque.model import keys
from blueque.node.keeper import FAILURES, Keeper
from blueque.system import process
from blueque.task_process.main import NAME

# Does to a keeper what the file `fault` says.
SABOTAGE = f"""
    import errno, os, signal, sys, time

    exec(open({str(ROOT / "tests" / "patched" / "sitecustomize.py")!r}).read())

    def is_to(fault):
        try:
            return open("fault").read() == fault
        except OSError:
            return False

    def fork():
        if is_to("no processes"):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if is_to("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if is_to("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        pid = FORK()
        if pid and is_to("kill after a fork"):
            os.kill(os.getpid(), signal.SIGKILL)
        return pid

    def wait4(*arguments):
        waited = WAIT4(*arguments)
        if os.getpid() == KEEPER and waited[1]:  # it has not ended well
            if is_to("kill after reaping"):
                os.kill(KEEPER, signal.SIGKILL)
            if is_to("stop after reaping"):
                os.kill(KEEPER, signal.SIGSTOP)
        return waited

    if "blueque-keeper" in sys.orig_argv:
        KEEPER = os.getpid()
        FORK, os.fork = os.fork, fork
        WAIT4, os.wait4 = os.wait4, wait4
        if is_to("end at the start"):
            sys.exit(1)
        while is_to("hang at the start"):
            time.sleep(0.01)
"""
SOON = {
    "node.keeper.ANSWER": 0.5,
    "node.keeper.START": 3.0,
    "node.keeper.TRY_AGAIN": 0.2,
    "node.keeper.RARELY": 0.5,
    "node.launcher.TRY_AGAIN": 0.2,
}  # seconds
FAULTS = ["end at the start", "hang at the start", "kill", "kill after a fork", "stop"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A directory with the sabotage, the same for all tests, whose listeners can then be forks."""
    site: Path = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(textwrap.dedent(SABOTAGE))
    return site


@pytest.fixture
def programs(url, tmp_path, site) -> Iterator[Programs]:
    with Programs(url, tmp_path, sabotaged(site, {})) as programs:
        programs.write(WORK)
        yield programs


@pytest.fixture
def hasty(url, tmp_path, site) -> Iterator[Programs]:
    """Programs that do not wait for long for an answer."""
    with Programs(url, tmp_path, sabotaged(site, SOON)) as programs:
        programs.write(WORK)
        yield programs


def sabotaged(site: Path, constants: dict[str, float]) -> dict[str, str]:
    """Return the environment of programs whose keeper has what the file `fault` says."""
    environ = patched(constants)
    environ["PYTHONPATH"] = f"{site}{os.pathsep}{environ['PYTHONPATH']}"
    return environ


def have(programs: Programs, fault: str | None) -> None:
    """Let this happen from now on; None: nothing."""
    path = programs.directory / "fault"
    if fault is None:
        path.unlink()
    else:
        path.write_text(fault)


def run(programs: Programs, count: int) -> list[str]:
    """Run tasks one after the other, each of which completes at its first attempt."""
    queue = programs.client.get_queue("work")
    done = [ended(programs.client, queue.enqueue("quick")) for _ in range(count)]
    assert [(task.status, task.attempt) for task in done] == [("complete", 1)] * count
    return [task.id for task in done]


def run_once(programs: Programs, tasks: list[str]) -> bool:
    """Tell whether each of the tasks has run, and that once."""
    return [line.task for line in ledger(programs)] == tasks


def slot_of(listener: Listener) -> int:
    (slot,) = listener.slots()
    return slot


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def spare_of(slot: int) -> int:
    """Return the task process that waits."""
    (spare,) = until(
        lambda: len(found := task_processes_of(slot)) == 1 and found, what="a spare process"
    )
    return spare


def test_a_keeper_that_cannot_be_forked_is_given_up():
    def start(end: int) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    keeper = Keeper(start)
    keeper.start()

    assert (keeper.is_there, keeper.descriptors, keeper.has_been_lost()) == (False, [], True)


def test_task_processes_are_children_of_the_keeper_in_groups_of_their_own(programs):
    slot = slot_of(programs.listener("work:run", "--warm"))
    keeper, spare = keeper_of(slot), spare_of(slot)

    task = begin(programs, "wait")

    assert (task.pid, parent_of(task.pid), parent_of(keeper)) == (spare, keeper, slot)
    assert (name_of(task.pid), os.getsid(task.pid)) == (NAME, task.pid)
    let_go(programs)
    assert ended(programs.client, task.id).fields.get("status") == "complete"
    assert keeper_of(slot) == keeper


def test_a_slot_has_a_keeper_from_its_first_task_on(programs):
    slots = programs.listener("work:run", slots=2).slots()

    run(programs, 1)

    assert sorted(len(process.children(slot)) for slot in slots) == [0, 1]


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_becomes_of_it_tasks_run_once_and_another_one_is_started(hasty, fault):
    have(hasty, fault)
    listener = hasty.listener("work:run", "--beat", "0.2s", "--lease", "2s")
    queue = hasty.client.get_queue("work")
    waiting = [queue.enqueue("quick") for _ in range(3)]

    listener.says("keeper pid=")
    have(hasty, None)

    assert {ended(hasty.client, task).attempt for task in waiting} == {1}
    tasks = waiting + run(hasty, 10)
    keeper = keeper_of(slot_of(listener))
    assert run_once(hasty, tasks)
    assert listener.stop() == 0
    until(lambda: hasty.left() == [], what="the end of all")
    assert not is_there(keeper)


def test_without_room_for_processes_the_task_waits(programs):
    listener = programs.listener("work:run")
    tasks = run(programs, 1)
    have(programs, "no processes")
    waiting = [programs.client.get_queue("work").enqueue("quick") for _ in range(30)]

    listener.says("cannot run a task")
    have(programs, None)

    assert {ended(programs.client, task).attempt for task in waiting} == {1}
    assert run_once(programs, tasks + waiting)
    assert "keeper pid=" not in listener.log, "it is no reason for another one"


def test_where_no_keeper_starts_the_task_goes_back_in_line_until_one_does(hasty):
    have(hasty, "end at the start")
    listener = hasty.listener("work:run")
    task = hasty.client.get_queue("work").enqueue("quick")

    listener.says("reason=no_process")
    listener.says("cannot run tasks: their keeper has ended")
    assert hasty.client.get_task(task).status == "pending"
    have(hasty, None)

    assert ended(hasty.client, task).status == "complete"
    assert run_once(hasty, [task, *run(hasty, 1)])
    assert "tasks can be run again" in listener.log


def test_a_keeper_that_hangs_at_each_start_is_as_good_as_none(url, tmp_path, site):
    times = {**SOON, "node.keeper.START": 0.3, "node.keeper.RARELY": 0.2}
    with Programs(url, tmp_path, sabotaged(site, times)) as programs:
        programs.write(WORK)
        have(programs, "hang at the start")
        listener = programs.listener("work:run")
        programs.client.get_queue("work").enqueue("quick")

        listener.says("reason=no_process")
        listener.says("cannot run tasks: their keeper has not started in time")


def test_a_process_that_waits_takes_tasks_though_no_keeper_starts(hasty):
    listener = hasty.listener("work:run", "--reuse", "1000000")
    tasks = run(hasty, 1)
    have(hasty, "end at the start")
    os.kill(keeper_of(slot_of(listener)), signal.SIGKILL)
    while len(listener.lines("keeper pid=")) <= FAILURES:
        tasks += run(hasty, 1)

    assert run_once(hasty, tasks + run(hasty, 3))


def test_a_listener_that_can_run_nothing_leaves_an_empty_queue(hasty):
    have(hasty, "end at the start")
    task = hasty.client.get_queue("work").enqueue("quick")
    listener = hasty.listener("work:run", "--until-empty")
    listener.says("reason=no_process")

    hasty.client.get_queue("work").cancel(task)

    listener.says("nothing left to take")
    assert listener.wait() == 0


def test_killed_while_it_waits_it_is_replaced(programs):
    slot = slot_of(programs.listener("work:run", "--warm"))
    keeper, spare = keeper_of(slot), spare_of(slot)

    os.kill(keeper, signal.SIGKILL)

    until(lambda: not is_there(keeper) and not is_there(spare), what="their end")
    tasks = run(programs, 3)
    assert run_once(programs, tasks) and keeper_of(slot) != keeper


# How a task ends, whatever becomes of its keeper while it runs: what it does, status, error.
ENDS = {
    "wait": ("complete", None),
    "drop_out 7": ("failed", "the process left with exit code 7 and without a result"),
    "killed": ("failed", "killed by SIGKILL"),
}


def end_of(programs: Programs, how: str, task: Task) -> None:
    """Let the task end in this way, and see that its end is recorded as it was."""
    let_end(programs, how, task)
    done = ended(programs.client, task.id)
    assert (done.status, done.error, done.attempt) == (*ENDS[how], 1)
    assert is_sound(programs.client) and len(ledger(programs, task.id)) == 1


def let_end(programs: Programs, how: str, task: Task) -> None:
    if how != "killed":
        let_go(programs)
    elif is_there(task.pid):
        os.kill(task.pid, signal.SIGKILL)


@pytest.mark.parametrize("how", ENDS)
def test_killed_while_a_task_runs_its_slot_tells_how_the_task_ended(programs, how):
    slot = slot_of(programs.listener("work:run"))
    task = begin(programs, "wait" if how == "killed" else how)
    keeper = keeper_of(slot)

    os.kill(keeper, signal.SIGKILL)

    until(lambda: parent_of(task.pid) == slot, what="that the task has come to the slot")
    end_of(programs, how, task)
    assert run(programs, 3) and keeper_of(slot) != keeper


@pytest.mark.parametrize("how", ENDS)
def test_stopped_while_a_task_runs_the_end_of_the_task_is_told(hasty, how):
    slot = slot_of(hasty.listener("work:run", "--beat", "0.2s", "--lease", "2s"))
    task = begin(hasty, "wait" if how == "killed" else how)
    keeper = stop(keeper_of(slot))

    end_of(hasty, how, task)

    assert run(hasty, 3) and keeper_of(slot) != keeper


@pytest.mark.parametrize("how", [how for how in ENDS if how != "wait"])
@pytest.mark.parametrize("fault", ["kill after reaping", "stop after reaping"])
def test_gone_when_it_has_just_reaped_a_task_the_end_of_the_task_is_told(hasty, fault, how):
    hasty.listener("work:run", "--beat", "0.2s", "--lease", "2s")
    task = begin(hasty, "wait" if how == "killed" else how)
    have(hasty, fault)

    end_of(hasty, how, task)

    have(hasty, None)
    assert run(hasty, 3)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_gone_when_the_exit_record_is_written_the_task_ends_as_that_says(hasty, number):
    hasty.write(
        """
        import atexit, os, time
        def stay():
            open("recorded", "w").close()
            while not os.path.exists("go"):
                time.sleep(0.005)
        def run(task):
            atexit.register(stay)
            return "done"
        """,
        "film.py",
    )
    slot = slot_of(hasty.listener("film:run", "--beat", "0.2s", "--lease", "2s"))
    queue = hasty.client.get_queue("work")
    task = queue.enqueue("")
    until((hasty.directory / "recorded").exists, what="its exit record")
    keeper = keeper_of(slot)

    os.kill(keeper, number)
    let_go(hasty)

    done = [ended(hasty.client, task), ended(hasty.client, queue.enqueue(""))]
    assert [(one.status, one.result, one.attempt) for one in done] == [("complete", "done", 1)] * 2
    assert keeper_of(slot) != keeper


def test_stopped_before_a_task_has_begun_the_task_runs_once(hasty):
    hasty.write(SLOWLY, "film.py")
    slot = slot_of(hasty.listener("film:run", "--warm", "--beat", "0.2s", "--lease", "2s"))
    keeper, first = keeper_of(slot), spare_of(slot)
    until((hasty.directory / f"imported.{first}").exists, what="its import")
    (hasty.directory / "slowly").touch()
    queue = hasty.client.get_queue("work")
    assert ended(hasty.client, queue.enqueue("")).pid == first
    task = queue.enqueue("")
    until(lambda: hasty.client.get_task(task).status == "started", what="its start")

    stop(keeper)
    (hasty.directory / "slowly").unlink()

    done = [ended(hasty.client, one) for one in (task, queue.enqueue(""))]
    assert [(one.status, one.attempt) for one in done] == [("complete", 1)] * 2
    assert keeper_of(slot) != keeper


SLOWLY = """
    import os, time
    while os.path.exists("slowly"):
        time.sleep(0.005)
    open(f"imported.{os.getpid()}", "w").close()
    def run(task):
        return "done"
"""
LEAVES = """
    import os, subprocess, time

    def run(task):
        command = "setsid sleep 1000 > /dev/null 2>&1 & echo $!"
        found = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True)
        open(f"left.{task.id}", "w").write(found.stdout)
        while task.parameters == "wait" and not os.path.exists("go"):
            time.sleep(0.005)
"""


def left_by(programs: Programs, task: str) -> int:
    """Return the pid of what a task leaves behind."""
    path = programs.directory / f"left.{task}"
    return int(until(lambda: path.exists() and path.read_text(), what="what it leaves"))


def test_stopped_before_a_task_what_the_task_leaves_is_ended(hasty):
    hasty.write(LEAVES, "film.py")
    slot = slot_of(hasty.listener("film:run", "--warm", "--beat", "0.2s", "--lease", "2s"))
    keeper, _ = keeper_of(slot), spare_of(slot)
    stop(keeper)

    task = hasty.client.get_queue("work").enqueue("")

    assert ended(hasty.client, task).leaked == 1 and not is_there(left_by(hasty, task))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_gone_while_a_task_runs_what_the_task_leaves_is_ended(hasty, number):
    hasty.write(LEAVES, "film.py")
    slot = slot_of(hasty.listener("film:run", "--beat", "0.2s", "--lease", "2s"))
    queue = hasty.client.get_queue("work")
    task = queue.enqueue("wait")
    left = left_by(hasty, task)
    until(lambda: len(task_processes_of(slot)) == 2, what="a spare process")

    os.kill(keeper_of(slot), number)
    let_go(hasty)

    assert ended(hasty.client, task).leaked == 1 and not is_there(left)


def test_what_a_reused_process_leaves_is_ended_when_its_keeper_is_gone(hasty):
    hasty.write(LEAVES, "film.py")
    slot = slot_of(hasty.listener("film:run", "--reuse", "9"))
    queue = hasty.client.get_queue("work")
    first = ended(hasty.client, queue.enqueue(""))
    os.kill(keeper_of(slot), signal.SIGKILL)
    until(lambda: parent_of(first.pid) == slot, what="that the process has come to the slot")

    task = queue.enqueue("")

    assert ended(hasty.client, task).leaked == 1 and not is_there(left_by(hasty, task))


def test_a_task_that_another_listener_has_adopted_is_not_left_by_the_next_task(hasty):
    pace = ("--beat", "0.2s", "--lease", "2s")
    listener = hasty.listener("work:run", *pace)
    slot, task = slot_of(listener), begin(hasty, "wait")
    os.kill(keeper_of(slot), signal.SIGKILL)
    until(lambda: parent_of(task.pid) == slot, what="that the task has come to the slot")
    stop(slot)
    hasty.listener("work:run", *pace)
    has_moved(hasty.client, task)
    os.kill(slot, signal.SIGCONT)
    listener.says("no longer watching it")

    following = begin(hasty, "wait")
    os.kill(keeper_of(slot), signal.SIGKILL)
    until(lambda: parent_of(following.pid) == slot, what="that it has come to the slot")
    (hasty.directory / f"go.{following.id}").touch()

    assert ended(hasty.client, following.id).status == "complete"
    assert is_there(task.pid)
    end_of(hasty, "wait", task)


@pytest.mark.parametrize("death", ["os._exit(3)", "os.kill(os.getpid(), 11)"])
def test_ended_by_what_it_preloads_its_listener_ends_and_says_so(programs, death):
    programs.write(f"import os\n{death}\n", "heavy.py")

    listener = programs.listener("work:run", "--preload", "heavy", is_awaited=False)

    assert listener.wait() == 78
    assert "cannot preload" in listener.log


@pytest.mark.parametrize("how", ENDS)
def test_with_its_slot_and_master_killed_it_tells_how_the_task_ended(programs, how):
    listener = programs.listener("work:run")
    slot = slot_of(listener)
    task = begin(programs, "wait" if how == "killed" else how)
    keeper = keeper_of(slot)
    kill_all(listener, slot)
    until(lambda: living_children_of(keeper) == {task.pid}, what="the end of the spare one")

    programs.listener("work:run")
    has_moved(programs.client, task)

    assert parent_of(task.pid) == keeper
    end_of(programs, how, task)
    until(lambda: not is_there(keeper), what="its end")


@pytest.mark.parametrize("how", ENDS)
def test_how_a_task_ended_that_nobody_watched_is_told_when_there_is_a_listener_again(programs, how):
    listener = programs.listener("work:run")
    slot = slot_of(listener)
    task = begin(programs, "wait" if how == "killed" else how)
    keeper = keeper_of(slot)
    kill_all(listener, slot)
    let_end(programs, how, task)
    until(lambda: not is_there(keeper), what="its end")

    programs.listener("work:run")

    end_of(programs, how, task)


def test_killed_with_its_slot_the_master_tells_how_the_task_ended(programs):
    listener = programs.listener("work:run")
    slot, task = slot_of(listener), begin(programs, "wait")
    keeper = keeper_of(slot)

    os.kill(keeper, signal.SIGKILL)
    os.kill(slot, signal.SIGKILL)

    until(lambda: parent_of(task.pid) == listener.pid, what="that the task has come to the master")
    end_of(programs, "killed", task)


def test_a_task_that_has_not_begun_when_its_keeper_is_killed_is_the_next_in_line_again(programs):
    programs.write(SLOWLY, "film.py")
    slot = slot_of(programs.listener("film:run", "--warm"))
    first = spare_of(slot)
    until((programs.directory / f"imported.{first}").exists, what="its import")
    (programs.directory / "slowly").touch()
    queue = programs.client.get_queue("work")
    assert ended(programs.client, queue.enqueue("")).pid == first
    task = queue.enqueue("")
    until(lambda: programs.client.get_task(task).status == "started", what="its start")

    os.kill(keeper_of(slot), signal.SIGKILL)

    until(lambda: programs.client.get_task(task).attempt == 2, what="its second attempt")
    (programs.directory / "slowly").unlink()
    done = ended(programs.client, task)
    assert (done.status, done.failures, done.interruptions) == ("complete", None, None)


def test_stopped_while_it_is_not_needed_it_costs_one_wait(hasty):
    listener = hasty.listener("work:run", "--beat", "0.2s", "--lease", "2s")
    tasks = run(hasty, 1)
    slot = slot_of(listener)
    keeper, _ = keeper_of(slot), spare_of(slot)
    stop(keeper)

    tasks += run(hasty, 5)

    listener.says("has not answered in time")
    until(lambda: not is_there(keeper), what="its end, reaped")
    assert run_once(hasty, tasks)


def stop(pid: int) -> int:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", what="its stop")
    return pid


def kill_all(listener: Listener, slot: int) -> None:
    listener.send(signal.SIGKILL)
    listener.wait()
    os.kill(slot, signal.SIGKILL)
    until(lambda: not is_there(slot), what="the end of the slot")


def living_children_of(pid: int) -> set[int]:
    return set(filter(is_there, process.children(pid)))


def test_the_wait_for_its_answer_goes_on_through_signals(url, tmp_path):
    with Programs(url, tmp_path, patched({"node.keeper.ANSWER": 60.0})) as programs:
        programs.write(WORK)
        listener = programs.listener("work:run")
        slot = slot_of(listener)
        run(programs, 1)
        server, spare = keeper_of(slot), spare_of(slot)
        stop(server)
        os.kill(spare, signal.SIGKILL)
        until(lambda: not is_there(spare), what="the end of the spare process")
        task = programs.client.get_queue("work").enqueue("quick")
        line = ("LLEN", keys.pending("work"))
        until(
            lambda: programs.client.connections.read(line) == [0],
            what="the task, for which there is no process",
        )

        for _ in range(10):
            before = switches_of(slot)
            os.kill(slot, signal.SIGCHLD)
            until(lambda before=before: switches_of(slot) > before, what="that the slot has woken")
        os.kill(server, signal.SIGCONT)

        assert ended(programs.client, task).attempt == 1
        assert "cannot run a task" not in listener.log and "keeper pid=" not in listener.log


def switches_of(pid: int) -> int:
    """Return how many times a process has begun to wait."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (count,) = [line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")]
    return int(count)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_listener_without_some_of_its_standard_streams_runs_tasks(programs, closed):
    command = [sys.executable, "-m", "blueque.cli.listener", "work", "--handler", "work:run"]
    command += ["--redis-url", programs.url, "--spool", str(programs.directory / "spool")]
    started = programs.start(["sh", "-c", f'exec "$@" {closed}', "sh", *command])

    tasks = run(programs, 3)
    assert run_once(programs, tasks) and started.is_running
    for task in tasks:
        attempt = programs.directory / "spool" / f"{task}@1"
        assert [(attempt / name).read_text() for name in ("stdout", "stderr")] == ["", ""]


def test_it_outlives_a_slot_that_is_killed_until_the_task_has_ended(programs):
    listener = programs.listener("work:run")
    slot = slot_of(listener)
    task, keeper = begin(programs, "wait"), keeper_of(slot)
    spare = until(lambda: task_processes_of(slot) - {task.pid}, what="a spare process")

    os.kill(slot, signal.SIGKILL)

    until(lambda: not any(map(is_there, spare)), what="the end of the spare process")
    has_moved(programs.client, task)
    assert (parent_of(task.pid), parent_of(keeper)) == (keeper, listener.pid)
    let_go(programs)
    assert ended(programs.client, task.id).status == "complete"
    until(lambda: not is_there(keeper), what="its end")


def test_a_listener_that_adopts_starts_one_when_it_reserves_a_task(programs):
    listener = programs.listener("work:run", "--beat", "0.2s", "--lease", "2s")
    slot, task = slot_of(listener), begin(programs, "wait")

    os.kill(slot, signal.SIGKILL)

    adopter = until(
        lambda: pid if (pid := pid_of(programs.client.get_task(task.id).node)) != slot else None,
        what="another listener",
    )
    assert process.children(adopter) == set()
    let_go(programs)
    assert ended(programs.client, task.id).status == "complete"
    assert run(programs, 1) and keeper_of(adopter)


def test_it_ignores_what_ends_a_group_and_a_task_does_not(programs):
    listener = programs.listener("work:run")
    slot = slot_of(listener)
    task, server = begin(programs, "wait"), keeper_of(slot)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(server, number)

    os.kill(task.pid, signal.SIGTERM)

    assert ended(programs.client, task.id).status == "failed"
    assert (run(programs, 1) and keeper_of(slot)) == server


def test_an_edited_handler_counts_at_once(programs):
    programs.write("def run(task):\n    return 'old'\n", "film.py")
    slot = slot_of(programs.listener("film:run", "--no-warm"))
    queue = programs.client.get_queue("work")
    assert ended(programs.client, queue.enqueue("")).result == "old"

    programs.write("def run(task):\n    return 'edited'\n", "film.py")

    assert ended(programs.client, queue.enqueue("")).result == "edited"
    assert keeper_of(slot)


@pytest.mark.parametrize("options", [(), ("--no-warm",)])
def test_what_a_handler_imports_of_the_library_is_there_for_the_next(programs, options):
    programs.write(
        """
        import sys
        IS_THERE = "logging" in sys.modules
        import logging

        def run(task):
            return IS_THERE
        """,
        "film.py",
    )
    slot, queue = (
        slot_of(programs.listener("film:run", *options)),
        programs.client.get_queue("work"),
    )
    first = ended(programs.client, queue.enqueue("")).result
    spare_of(slot)

    found = [ended(programs.client, queue.enqueue("")).result for _ in range(12)]

    assert (first, found[-1]) == (False, True)


@pytest.mark.parametrize("size", [1_000, 99_000, 101_000, 300_000])
def test_parameters_of_any_size_reach_a_task(programs, size):
    programs.write("def run(task):\n    return len(task.parameters['text'])\n", "film.py")
    programs.listener("film:run")

    task = programs.client.get_queue("work").enqueue({"text": "é" * size})

    assert json.loads(ended(programs.client, task).fields["result"]) == size


def test_the_preloaded_are_in_the_next_keeper_too(programs):
    programs.write("import os\nBY = os.getpid()\n", "heavy.py")
    programs.write("def run(task):\n    import heavy\n    return heavy.BY\n", "film.py")
    slot = slot_of(programs.listener("film:run", "--preload", "heavy"))
    queue, first = programs.client.get_queue("work"), keeper_of(slot)
    assert ended(programs.client, queue.enqueue("")).result == first

    os.kill(first, signal.SIGKILL)

    def used() -> bool:
        by = ended(programs.client, queue.enqueue("")).result
        return by != first and by in process.children(slot)

    until(used, what="a task of the next keeper")


TWO_FILES = """
    import os, sys
    sys.path.insert(0, os.path.dirname(__file__))
    import utils

    def run(task):
        return utils.NAME
"""


def test_modules_of_one_name_of_two_handlers_are_not_confused(programs):
    for name in ("a", "b"):
        (programs.directory / name).mkdir()
        programs.write("", f"{name}/__init__.py")
        programs.write(TWO_FILES, f"{name}/film.py")
        programs.write(f"NAME = {name!r}\n", f"{name}/utils.py")
    programs.write(
        """
        [queues.a]
        handler = "a.film:run"
        [queues.b]
        handler = "b.film:run"
        """,
        "blueque.toml",
    )
    spool = str(programs.directory / "spool")
    command = ["a", "b", "--redis-url", programs.url, "--spool", spool]
    programs.start([sys.executable, "-m", "blueque.cli.listener", *command])

    order = "aabbabbbaab"
    tasks = [programs.client.get_queue(name).enqueue("") for name in order]

    assert "".join(ended(programs.client, task).result for task in tasks) == order


LATE = """
    import os, socket, sys

    def closing(task):
        os.closerange(3, 4096)
        from blueque import Client
        return Client.__name__

    def replacing(task):
        file = os.open(__file__, os.O_RDONLY)
        for number in range(200, 260):
            os.dup2(file, number)
        from blueque import Client
        return Client.__name__

    def patching(task):
        class Own(socket.socket):
            pass
        socket.socket = Own
        import ssl
        return issubclass(ssl.SSLSocket, Own)

    def arguments(task):
        return sys.argv[1:]
"""


@pytest.mark.parametrize(
    ("name", "result"), [("closing", "Client"), ("replacing", "Client"), ("patching", True)]
)
def test_what_a_handler_does_comes_to_the_same_for_the_tenth_task(programs, name, result):
    programs.write(LATE, "film.py")
    programs.listener(f"film:{name}")
    queue = programs.client.get_queue("work")

    done = [ended(programs.client, queue.enqueue("")) for _ in range(12)]

    assert [(task.status, task.result) for task in done] == [("complete", result)] * 12


def test_a_handler_sees_the_arguments_of_its_listener(programs):
    programs.write(LATE, "film.py")
    slot = slot_of(programs.listener("film:arguments", "--no-warm"))
    queue = programs.client.get_queue("work")
    said = [ended(programs.client, queue.enqueue("")).result]
    spare_of(slot)

    said.append(ended(programs.client, queue.enqueue("")).result)

    assert all("film:arguments" in words and "--no-warm" in words for words in said)


def channels_of(pid: int) -> list[str]:
    """Return the pipes and sockets that a process has."""
    kept = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            kept.append(os.readlink(path))
    return [target for target in kept if target.startswith(("pipe", "socket"))]


@pytest.mark.parametrize("options", [("--exec", "sleep", "1000"), ("work:run", "--no-warm")])
def test_no_descriptor_of_the_keeper_is_left_in_a_task_process(programs, options):
    programs.listener(*options)
    queue = programs.client.get_queue("work")
    for _ in range(2):
        task_id = queue.enqueue("wait")
        task = until(
            lambda task_id=task_id: (
                (now := programs.client.get_task(task_id)).status == "started" and now
            ),
            what="its start",
        )
        until(lambda pid=task.pid: not channels_of(pid), what="no pipe and no socket")
        queue.cancel(task.id)
        assert ended(programs.client, task.id).status == "cancelled"
