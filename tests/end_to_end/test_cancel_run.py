"""Cancelling on real processes: a task that waits never runs, one that runs is ended, wherever its
listener is.
"""

from __future__ import annotations

import os
import resource
import signal
import time

import pytest
from handlers import (
    WORK,
    begin,
    children_of_task,
    ended,
    has_moved,
    is_sound,
    ledger,
    let_go,
    owner,
    pid_of,
)
from running import Programs, is_there, patched, state_of, until

from blueque import Client, Retry, WrongState
from blueque.system.embedded_redis import running_server

SOON = 5.0  # seconds; the listeners here beat every ten, so no beat has helped


# A listener would hear of orders after a second only, and look again after two whether it can start
# a task; and one that has not lived for a second would be replaced after another.
ENVIRON = patched(
    {"node.supervisor.QUIET": 0.1, "node.launcher.TRY_AGAIN": 0.4, "node.slots._YOUNG": 0.1}
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A listener that tests share which do not harm it."""
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("cancel"), ENVIRON) as programs,
    ):
        programs.write(WORK)
        programs.listener("work:run", slots=3, grace="0.5s")
        yield programs


def cancel(programs, task, **words):
    return programs.client.get_queue("work").cancel(task.id, **words)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", what="the standing still")


def is_in_no_list(programs, task_id):
    """Tell whether only the list of cancelled tasks has the task."""
    redis = programs.client.connections
    (keys,) = redis.read(("KEYS", "blueque_*"))
    (cancelled,) = redis.read(("LRANGE", "blueque_cancelled_tasks_work", 0, -1))
    assert cancelled.count(task_id) == 1
    for key in keys:
        (kind,) = redis.read(("TYPE", key))
        if kind == "list" and key != "blueque_cancelled_tasks_work":
            assert task_id not in redis.read(("LRANGE", key, 0, -1))[0], key
        elif kind == "set":
            assert not any(task_id in member for member in redis.read(("SMEMBERS", key))[0]), key
        elif kind == "zset" and key != "blueque_tasks_work":
            assert task_id not in redis.read(("ZRANGE", key, 0, -1))[0], key
    return True


# A task that has not begun


def test_a_task_that_waits_leaves_every_list_at_once_and_never_runs(programs):
    queue = programs.client.get_queue("work")
    pending, scheduled = queue.enqueue("quick"), queue.schedule("quick", time.time() + 0.5)
    following = queue.schedule("quick", time.time() + 0.6)
    assert [queue.cancel(task_id, by="ann", reason="typo") for task_id in (pending, scheduled)] == [
        "cancelled"
    ] * 2
    for task_id in (pending, scheduled):
        task = programs.client.get_task(task_id)
        assert (task.status, task.cancelled_by) == ("cancelled", "ann")
        assert task.fields["cancel_reason"] == "typo"
        assert is_in_no_list(programs, task_id)
    programs.listener("work:run", "--beat", "0.2s")
    assert ended(programs.client, following).result == "done"
    assert [run.task for run in ledger(programs)] == [following] and is_sound(programs.client)


def test_a_reserved_task_that_its_listener_cannot_start_yet_is_cancelled_at_once_and_not_started_later(
    programs,
):
    queue, listener = programs.client.get_queue("work"), programs.listener("work:run")
    (slot,) = listener.slots()
    room = programs.directory / "spool" / f"room.{slot}"
    until(lambda: room.exists() and room.stat().st_size > 2**20, what="the room for its results")
    before = resource.prlimit(slot, resource.RLIMIT_FSIZE)
    # no larger files: like a full disk, for one task
    resource.prlimit(slot, resource.RLIMIT_FSIZE, (2**16, before[1]))
    task_id = queue.enqueue("quick " + 2**17 * "x")
    listener.says(f"holding task {task_id}")
    until(
        lambda: programs.client.get_task(task_id).status == "reserved",
        what="the listener has reserved the task that it holds",
    )
    assert queue.cancel(task_id) == "cancelled"
    assert is_in_no_list(programs, task_id)
    resource.prlimit(slot, resource.RLIMIT_FSIZE, before)
    following = queue.enqueue("quick")
    listener.says("not started task=")
    assert ended(programs.client, following).result == "done"
    assert programs.client.get_task(task_id).status == "cancelled"
    assert [run.task for run in ledger(programs)] == [following] and is_sound(programs.client)


# A task that runs


def test_another_process_ends_a_running_task_its_children_too_and_it_is_not_run_again(shared):
    task = begin(shared, "leave_children plain session", retry=Retry(max=5, backoff=0))
    until(lambda: len(children_of_task(task.id)) == 2, what="its children")
    children = children_of_task(task.id)
    asked = time.monotonic()
    other = shared.script(f"""
        from blueque import Client
        print(Client({shared.url!r}).get_queue("work").cancel({task.id!r}, by="ann", reason="wrong file"))
    """)
    assert other.wait() == 0 and other.printed == "cancelling\n"
    done = ended(shared.client, task.id, SOON)
    assert time.monotonic() - asked < SOON
    assert (done.status, done.cancelled_by) == ("cancelled", "ann")
    assert done.fields["cancel_reason"] == "wrong file"
    assert (done.error, done.failures, done.interruptions, done.attempt) == (None, None, None, 1)
    assert done.cpu_seconds is not None and done.memory_peak > 1_000_000
    assert not any(map(is_there, [task.pid, *children]))
    assert len(ledger(shared, task.id)) == 1 and is_in_no_list(shared, task.id)


def test_a_listener_hears_of_it_even_if_the_key_of_the_scheduled_tasks_is_odd(programs, cli):
    programs.listener("work:run", "--beat", "0.2s")
    cli.set("blueque_scheduled_tasks_work", "odd")
    task = begin(programs)
    assert cancel(programs, task) == "cancelling"
    assert ended(programs.client, task.id, SOON).status == "cancelled"
    assert not is_there(task.pid)
    cli.delete("blueque_scheduled_tasks_work")
    assert is_sound(programs.client)


def test_an_attempt_that_is_not_wanted_any_more_does_not_put_back_its_task_when_that_is_deleted(
    programs, cli
):
    listener = programs.listener("work:run", "--beat", "0.2s", grace="2s")
    task = begin(programs, "ignore")
    queue = programs.client.get_queue("work")
    # Somebody has given it up and run it again, or ended it; then deletes it while the old attempt
    # has its grace.
    cli.hset(
        f"blueque_task_{task.id}",
        mapping={"status": "complete", "token": "another", "finished_by": "another"},
    )
    cli.delete("blueque_started_tasks_work", f"blueque_reserved_tasks_work_{task.node}")
    cli.lpush("blueque_complete_tasks_work", task.id)
    listener.says("no longer the owner")
    queue.delete_task(programs.client.get_task(task.id))
    assert is_there(task.pid), "its grace is over: this proves nothing"
    until(lambda: not is_there(task.pid), what="the end of the grace")
    assert ended(programs.client, queue.enqueue("quick")).result == "done"
    assert programs.client.get_task(task.id).fields == {}
    assert not listener.lines("reassert ") and is_sound(programs.client)


def test_tasks_that_do_not_heed_sigterm_or_fail_on_it_are_cancelled_all_the_same(shared):
    policy = Retry(max=5, backoff=0)
    tasks = [begin(shared, how, retry=policy) for how in ("ignore", "complain", "drop_out_on_term")]
    assert [cancel(shared, task) for task in tasks] == ["cancelling"] * 3
    for task in tasks:
        done = ended(shared.client, task.id, SOON)
        assert (done.status, done.error, done.attempt) == ("cancelled", None, 1)
        assert "@" in done.cancelled_by and not is_there(task.pid)
        assert len(ledger(shared, task.id)) == 1 and is_in_no_list(shared, task.id)


def test_a_task_that_completes_all_the_same_has_won_and_shows_that_it_was_to_be_cancelled(shared):
    task = begin(shared, "finish")
    assert cancel(shared, task, by="ann") == "cancelling"
    assert cancel(shared, task, by="bob") == "cancelling"
    done = ended(shared.client, task.id, SOON)
    assert (done.status, done.result, done.cancelled_by) == ("complete", "done", "ann")
    assert done.cancel is not None and done.cancel < done.finished
    with pytest.raises(WrongState, match="complete"):
        cancel(shared, task)


def test_a_listener_behind_a_proxy_hears_of_it_too(programs, proxy):
    direct, programs.url = programs.url, proxy.url
    programs.listener("work:run")
    task = begin(programs)
    with_direct = Client(direct)
    assert with_direct.get_queue("work").cancel(task.id) == "cancelling"
    assert ended(programs.client, task.id, SOON).status == "cancelled"
    with_direct.close()
    assert not is_there(task.pid) and is_sound(programs.client)


# When something else goes wrong at the same time


def test_a_task_that_is_cancelled_while_it_has_no_listener_is_ended_by_the_one_that_adopts_it(
    programs,
):
    listener = programs.listener("work:run")
    task = begin(programs, retry=Retry(max=5, backoff=0))
    stop(listener.pid)  # so that nobody is forked yet
    os.kill(pid_of(task.node), signal.SIGKILL)
    until(lambda: not is_there(pid_of(task.node)), what="the end of the listener")
    assert cancel(programs, task) == "cancelling" and is_there(task.pid)
    listener.send(signal.SIGCONT)
    done = ended(programs.client, task.id, SOON)
    assert (done.status, done.attempt, done.interruptions) == (
        "cancelled",
        1,
        None,
    ) and done.node != task.node
    assert not is_there(task.pid)
    assert len(ledger(programs)) == 1 and is_in_no_list(programs, task.id)
    assert is_sound(programs.client)


def test_a_task_that_is_cancelled_when_all_its_processes_are_gone_is_not_lost_but_cancelled(
    programs,
):
    listener = programs.listener("work:run")
    task = begin(programs, retry=Retry(max=5, backoff=0))
    listener.send(signal.SIGKILL)
    listener.wait()
    for pid in (pid_of(task.node), task.pid):
        os.kill(pid, signal.SIGKILL)
    until(
        lambda: not is_there(pid_of(task.node)) and not is_there(task.pid),
        what="the end of the processes",
    )
    assert cancel(programs, task) == "cancelling"
    programs.listener("work:run")
    assert ended(programs.client, task.id, SOON).status == "cancelled"
    assert len(ledger(programs)) == 1 and is_in_no_list(programs, task.id)
    assert is_sound(programs.client)


def test_an_adopted_task_can_be_cancelled(programs):
    listener = programs.listener("work:run")
    task = begin(programs)
    os.kill(pid_of(task.node), signal.SIGKILL)
    has_moved(programs.client, task)
    assert cancel(programs, task) == "cancelling"
    assert ended(programs.client, task.id, SOON).status == "cancelled"
    assert not is_there(task.pid) and listener.is_running and is_sound(programs.client)


def test_the_wish_survives_a_restart_of_redis_before_the_listener_has_heard_of_it(
    own_server, tmp_path
):
    with Programs(own_server.url, tmp_path, ENVIRON) as programs:
        programs.write(WORK)
        listener = programs.listener("work:run")
        task = begin(programs)
        stop(pid_of(task.node))
        assert cancel(programs, task) == "cancelling"
        own_server.kill()
        os.kill(pid_of(task.node), signal.SIGCONT)
        assert is_there(task.pid)
        own_server.start()
        assert ended(programs.client, task.id, SOON).status == "cancelled"
        assert not is_there(task.pid) and listener.is_running
        assert is_in_no_list(programs, task.id) and is_sound(programs.client)


def test_a_running_task_can_be_cancelled_after_a_restart_of_redis(own_server, tmp_path):
    with Programs(own_server.url, tmp_path, ENVIRON) as programs:
        programs.write(WORK)
        programs.listener("work:run")
        task = begin(programs)
        own_server.kill()
        own_server.start()
        assert owner(programs.client, task.id) == task.node
        assert cancel(programs, task) == "cancelling"
        assert ended(programs.client, task.id, SOON).status == "cancelled"
        assert not is_there(task.pid) and is_sound(programs.client)


def test_when_the_marker_is_lost_the_next_beat_tells_of_it(programs, cli):
    programs.listener("work:run", "--beat", "0.3s")
    task = begin(programs)
    # A cancel without its marker, which its listener may be waiting for at Redis.
    cancelled = {"cancel": time.time(), "cancelled_by": "ann"}
    cli.hset(f"blueque_task_{task.id}", mapping=cancelled)
    assert ended(programs.client, task.id, SOON).status == "cancelled"
    assert not is_there(task.pid) and is_sound(programs.client)


def test_a_task_that_ends_in_the_moment_in_which_it_is_cancelled_has_one_end_and_the_loser_knows(
    programs, state
):
    programs.listener("work:run", slots=2)
    queue = programs.client.get_queue("work")
    told = {}
    for _ in range(15):
        task = begin(programs)
        let_go(programs, task.id)
        try:
            told[task.id] = queue.cancel(task.id)
        except WrongState:
            told[task.id] = "too late"
    for task_id, said in told.items():
        done = ended(programs.client, task_id)
        assert done.status == "complete" or (done.status, said) == ("cancelled", "cancelling")
        assert (done.cancel is not None) == (done.status == "complete" and said == "cancelling")
    places = state()
    in_lists = places.get("blueque_complete_tasks_work", []) + places.get(
        "blueque_cancelled_tasks_work", []
    )
    assert sorted(in_lists) == sorted(told) and len(ledger(programs)) == len(told)
    assert is_sound(programs.client)
