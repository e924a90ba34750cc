"""Leaving: what becomes of running tasks when a blueque-listener is told to go, by a signal or from
afar.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import handlers
import pytest
from handlers import (
    beat_of,
    begin,
    ended,
    has_moved,
    is_sound,
    ledger,
    let_go,
    owner,
    pid_of,
    running,
)
from running import BLUEQUE, LISTENER, children_of, is_there, patched, until
from transactions import protocol

from blueque import Retry

WORK = handlers.WORK

QUICK = ("--beat", "0.2s", "--lease", "0.6s", "--lost-after", "30s")
ENVIRON = patched({"node.slots._LOOK_AT_HELD": 0.1, "node.slots._YOUNG": 0.1})


def of_listeners(state):
    """Return what Redis knows of listeners and of what they hold."""
    kinds = ("listeners", "listener", "nodes", "reserved", "started", "orders")
    return {
        key: value
        for key, value in state().items()
        if key.startswith(tuple(f"blueque_{kind}_" for kind in kinds))
    }


# leave


def test_with_leave_all_go_at_once_but_a_busy_listener_which_beats_reports_and_goes(
    programs, state
):
    listener = programs.listener("work:run", *QUICK, slots=3, on_term="leave")
    task = begin(programs)
    busy, slots = pid_of(task.node), listener.slots()
    listener.send(signal.SIGTERM)
    assert listener.wait(2) == 0
    until(
        lambda: [pid for pid in slots if is_there(pid)] == [busy],
        2,
        "the leaving of the idle listeners",
    )
    assert is_there(task.pid) and owner(programs.client, task.id) == task.node
    beats = beat_of(programs.client, "work", task.node)
    until(
        lambda: beat_of(programs.client, "work", task.node) >= beats + 3,
        what="its beats without a master",
    )
    assert programs.client.get_inspector().registration("work", task.node)["state"] == "alive"
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.result, done.pid, done.attempt, done.node) == ("done", task.pid, 1, task.node)
    until(lambda: programs.left() == [], what="the leaving of the busy listener")
    assert of_listeners(state) == {}
    assert list((programs.directory / "spool" / "listeners").iterdir()) == []
    assert is_sound(programs.client)


def test_a_listener_that_was_left_behind_counts_as_a_slot_of_the_next_master_until_it_has_gone(
    programs, queue
):
    first = programs.listener("work:run", *QUICK, slots=2, on_term="leave")
    task = begin(programs)
    assert first.stop() == 0
    second = programs.listener("work:run", *QUICK, slots=2, on_term="leave", is_awaited=False)
    following = begin(programs)
    waiting = queue.enqueue("wait")
    beats = beat_of(programs.client, "work", following.node)
    until(lambda: beat_of(programs.client, "work", following.node) >= beats + 2, what="its beats")
    assert second.slots() == [pid_of(following.node)]
    assert programs.client.get_task(waiting).status == "pending"
    let_go(programs, task.id)
    last = running(programs, waiting)
    assert second.slots() == sorted([pid_of(following.node), pid_of(last.node)])
    let_go(programs)
    for task_id in (task.id, following.id, waiting):
        done = ended(programs.client, task_id)
        assert (done.result, done.attempt) == ("done", 1)
    assert len(ledger(programs)) == 3 and is_sound(programs.client)


def test_the_task_of_a_listener_that_was_left_behind_and_then_killed_is_adopted_by_one_of_the_next_master(
    programs,
):
    first = programs.listener("work:run", on_term="leave")
    task = begin(programs)
    assert first.stop() == 0
    second = programs.listener("work:run", slots=2, is_awaited=False)
    following = begin(programs)  # both slots are taken
    os.kill(pid_of(task.node), signal.SIGKILL)
    # before any listener looks after others, every ten seconds
    node = has_moved(programs.client, task, 5)
    assert pid_of(node) in children_of(second.pid) and pid_of(node) != pid_of(following.node)
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.result, done.pid, done.attempt) == ("done", task.pid, 1)
    assert ended(programs.client, following.id).result == "done"
    assert len(ledger(programs)) == 2 and is_sound(programs.client)


# What --on-term is by default

# Everything is as it is here, but for the file by which Docker marks its containers.
NO_MARK = """
set -e
root=$0
mkdir -p "$root"
mount -t tmpfs tmpfs "$root"
for entry in /* /.[!.]*; do
    case $entry in /.dockerenv) continue ;; esac
    if [ -L "$entry" ]; then cp -P "$entry" "$root$entry"
    elif [ -d "$entry" ]; then mkdir "$root$entry"; mount --rbind "$entry" "$root$entry"
    elif [ -f "$entry" ]; then touch "$root$entry"; mount --bind "$entry" "$root$entry"
    fi
done
rm -f "$root/run/.containerenv"
here=$PWD
exec chroot "$root" sh -c 'cd "$0" && exec "$@"' "$here" "$@"
"""


def outside_a_container(root):
    """Return a command that takes another out of the container in which the tests may run. root: a
    new directory.
    """
    command = [
        "unshare",
        "--mount",
        *(["--map-root-user"] if os.geteuid() else []),
        "sh",
        "-c",
        NO_MARK,
        str(root),
    ]
    code = "import sys; from blueque.system.process import is_in_container; sys.exit(is_in_container())"
    tell = [sys.executable, "-c", code]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    tried = subprocess.run(
        [*command, *tell], capture_output=True, text=True, check=False, env=environ
    )
    if tried.returncode:
        pytest.fail(
            f"this test needs to leave its container, by a mount namespace, and could not: {tried.stderr.strip()}"
        )
    return command


@pytest.mark.parametrize(
    ("container", "first", "last"),
    [
        ("podman", "leaving when the running tasks have ended", "stopping the running tasks"),
        ("", "leaving the running tasks to their listeners", None),
    ],
)
def test_by_default_a_sigterm_means_drain_in_a_container_and_leave_outside(
    programs, container, first, last
):
    before = [] if container else outside_a_container(programs.directory / "root")
    work = ("work", "--handler", "work:run", "--redis-url", programs.url, "--spool", "spool")
    listener = programs.start(
        [*before, *LISTENER, *work], environ={"container": container, "KUBERNETES_SERVICE_HOST": ""}
    )
    task = begin(programs)
    listener.send(signal.SIGTERM)
    listener.says(first)
    assert is_there(task.pid)
    if container:
        assert listener.is_running
        listener.send_again(signal.SIGTERM)
        listener.says(last)
        assert listener.wait() == 128 + signal.SIGTERM
        assert programs.client.get_task(task.id).error_type == "stopped"
    else:
        assert listener.wait(2) == 0
        assert is_there(task.pid) and owner(programs.client, task.id) == task.node


# Ctrl-C


@pytest.mark.parametrize("on_term", ["leave", "stop"])
def test_the_first_ctrl_c_is_always_drain_and_the_second_stop(programs, queue, on_term):
    listener = programs.listener("work:run", slots=2, on_term=on_term)
    task = begin(programs)
    listener.send(signal.SIGINT)
    listener.says("taking nothing new")
    until(lambda: listener.slots() == [pid_of(task.node)], what="the leaving of the idle listener")
    following = queue.enqueue("quick")
    assert listener.is_running and is_there(task.pid)
    listener.send_again(signal.SIGINT)
    assert listener.wait() == 130
    done = programs.client.get_task(task.id)
    assert (done.status, done.error_type) == ("failed", "stopped")
    assert done.error == "stopped by operator: killed by SIGTERM"
    assert programs.client.get_task(following).status == "pending"
    until(lambda: programs.left() == [], what="that nothing is left")
    assert is_sound(programs.client)


# stop


def test_with_stop_a_task_that_may_run_again_is_the_next_in_line_at_no_cost_and_another_fails(
    programs, queue, cli, state
):
    listener = programs.listener("work:run", slots=2, on_term="stop")
    safe = queue.enqueue("fail_then_wait", retry=Retry(max=1, backoff=0, jitter=0))
    safe = running(programs, safe, attempt=2)
    once = begin(programs)
    following = queue.enqueue("quick")
    listener.send(signal.SIGTERM)
    listener.says("stopping the running tasks")
    assert listener.wait() == 0
    assert not is_there(safe.pid) and not is_there(once.pid)
    failed, waiting = programs.client.get_task(once.id), programs.client.get_task(safe.id)
    assert (failed.status, failed.error_type, failed.interruptions) == ("failed", "stopped", None)
    assert (waiting.status, waiting.attempt, waiting.failures, waiting.interruptions) == (
        "pending",
        2,
        1,
        None,
    )
    assert (waiting.node, waiting.pid, waiting.token, waiting.started) == (None, None, None, None)
    # taken from the tail
    assert cli.lrange("blueque_pending_tasks_work", 0, -1) == [following, safe.id]
    until(lambda: programs.left() == [], what="that nothing is left")
    assert of_listeners(state) == {}
    programs.listener("work:run")
    again = running(programs, safe.id, attempt=3)
    let_go(programs)
    assert ended(programs.client, again.id).result == "done"
    assert is_sound(programs.client)


# From afar


def test_listeners_that_are_drained_from_afar_leave_after_their_task_and_are_not_replaced(
    programs, queue, state
):
    listener = programs.listener("work:run", slots=3)
    task = begin(programs)
    host, _, busy = task.node.rpartition("_")
    idle, other = [pid for pid in listener.slots() if pid != int(busy)]

    def drain(pid):
        assert protocol.order(
            programs.client.connections, "work", f"{host}_{pid}", "drain", "a test"
        )

    drain(idle)
    until(lambda: not is_there(idle), 2, "the leaving of an idle listener")
    listener.says(f"listener pid={idle} has been drained")
    assert pid_of(ended(programs.client, queue.enqueue("quick")).node) == other
    assert sorted(listener.slots()) == sorted([other, int(busy)])
    drain(int(busy))
    until(
        lambda: len(listener.lines("told to drain")) == 2, 5, "the news reaching the busy listener"
    )
    assert is_there(task.pid)
    drain(other)
    until(lambda: not is_there(other), 2, "the leaving of the other idle listener")
    following = queue.enqueue("quick")
    assert listener.is_running
    let_go(programs)
    assert listener.wait() == 0
    assert ended(programs.client, task.id).result == "done"
    assert programs.client.get_task(following).status == "pending"
    until(lambda: programs.left() == [], what="that nothing is left")
    assert of_listeners(state) == {} and is_sound(programs.client)


def test_a_master_whose_slots_are_all_drained_stays_while_one_that_adopts_is_at_work(programs):
    master = programs.script("""
        import logging, os, sys, time
        from pathlib import Path
        from blueque.node.master import Master, Options
        from blueque.node.slots import EXIT_DRAINED

        def wait_for(name):
            while not Path(name).exists():
                time.sleep(0.01)

        def body(master):
            if master.adopts_only:
                Path("adopting.new").write_text(str(os.getpid()))
                os.rename("adopting.new", "adopting")
                wait_for("go")
                return 0
            os.write(master.requests, b"1\\n")
            wait_for("adopting")
            return EXIT_DRAINED

        logging.basicConfig()
        sys.exit(Master(body, Options(2)).run())
    """)
    until(lambda: len(master.lines("has been drained")) == 2, what="the leaving of both slots")
    adopter = int((programs.directory / "adopting").read_text())
    assert children_of(master.pid) >= {adopter}
    with pytest.raises(AssertionError, match="still there"):
        master.wait(1.0)
    assert is_there(adopter)
    let_go(programs)
    assert master.wait() == 0
    until(lambda: programs.left() == [], what="that nothing is left")


def test_a_listener_whose_max_runtime_stops_tasks_takes_none_that_may_run_longer(programs):
    programs.write(WORK)
    queue = programs.client.get_queue("work")
    too_long = queue.enqueue("quick", time_limit="2h", priority=5)
    short = queue.enqueue("quick", time_limit="5m")
    listener = programs.listener("work:run", "--max-runtime", "1h", on_term="stop")
    assert ended(programs.client, short).result == "done"
    listener.says(f"leaving task={too_long} to others: its time_limit of 2 h is longer than")
    assert programs.client.get_task(too_long).status == "pending"
    (reason,) = why(programs, too_long)
    assert (reason["code"], "(--max-runtime)" in reason["sentence"]) == ("no_time", True)
    programs.listener("work:run", "--max-runtime", "1h")  # with --on-term drain no task is stopped
    assert ended(programs.client, too_long).result == "done"


def why(programs, task_id):
    found = programs.start(
        [*BLUEQUE, "why", task_id, "--json"], environ={"BLUEQUE_REDIS_URL": programs.url}
    )
    assert found.wait() == 0
    return json.loads(found.printed)["reasons"]


def test_the_pruner_of_a_killed_master_ends_with_it_and_another_one_goes_on(programs):
    old, root = time.time() - 99, programs.directory / "spool"
    for number in range(5):
        (root / f"task{number}@1").mkdir(parents=True)
        (root / f"task{number}@1" / "reported").touch()
        os.utime(root / f"task{number}@1" / "reported", (old, old))
    master = programs.script("""
        import functools, os, signal, sys
        from pathlib import Path
        from types import SimpleNamespace
        from blueque.node import main
        from blueque.node.master import Master, Options
        from blueque.node.slots import Callbacks
        from blueque.spool import spool

        settings = {"keep": 10.0, "spool_limit": 1e9}
        choices = SimpleNamespace(spool="spool", max_bytes=1000, settings=settings)
        remove_tree = spool.remove_tree

        def remove_two(path):
            remove_tree(path)
            if len(list(Path("spool").glob("*@1"))) == 3:
                Path("pid.new").write_text(str(os.getpid()))
                os.rename("pid.new", "pid")
                signal.pause()

        def body(master):
            while True:
                signal.pause()

        if sys.argv[1:] == ["alone"]:
            main._prune(choices)
            sys.exit()
        (Path("spool") / "blanks").mkdir()
        spool.remove_tree = remove_two
        Master(body, Options(1), Callbacks(functools.partial(main._prune, choices))).run()
    """)
    until((programs.directory / "pid").exists, what="a pruner that is midway")
    pruner = int((programs.directory / "pid").read_text())
    assert children_of(master.pid) >= {pruner}
    another = programs.start([sys.executable, "script.py", "alone"])
    assert another.wait() == 0 and len([*root.glob("*@1")]) == 3  # it leaves it at that
    master.send(signal.SIGKILL)
    until(lambda: not is_there(pruner), what="the end of the pruner")
    last = programs.start([sys.executable, "script.py", "alone"])
    assert last.wait() == 0 and [*root.glob("*@1")] == []


# The room that each listener sets aside on the disk


def rooms(programs):
    return {
        int(path.name.partition(".")[2]) for path in (programs.directory / "spool").glob("room.*")
    }


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP], ids=["killed", "replaced"])
def test_the_room_of_a_listener_goes_with_it_while_another_one_runs_a_task(programs, number):
    started = programs.listener("work:run", *QUICK, slots=2)
    until(lambda: rooms(programs) == set(started.slots()), what="the rooms of both")
    task = begin(programs)
    busy = pid_of(task.node)
    (idle,) = set(started.slots()) - {busy}

    os.kill(idle if number == signal.SIGKILL else started.pid, number)

    def has_only_the_rooms_of_the_living():
        slots = set(started.slots()) - {idle}
        return len(slots) == 2 and rooms(programs) == slots

    until(
        has_only_the_rooms_of_the_living,
        what="the room of the new one, and that of the old one gone",
    )
    assert is_there(task.pid) and pid_of(owner(programs.client, task.id)) == busy


def test_the_room_of_a_killed_listener_stays_for_the_task_that_it_has_begun(programs):
    started = programs.listener("work:run", *QUICK)
    task = begin(programs)

    os.kill(pid_of(task.node), signal.SIGKILL)

    (new,) = {pid_of(has_moved(programs.client, task))}
    assert rooms(programs) >= {pid_of(task.node)}
    let_go(programs)
    assert ended(programs.client, task.id).result == "done"
    assert started.slots() == [new]
