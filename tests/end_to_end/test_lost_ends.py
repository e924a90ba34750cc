"""Failover: Redis goes back to what a replica knew, and the listeners that lived on report what has
happened since.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import handlers
import pytest
import redis as redis_py
from handlers import beat_of, begin, ended, is_sound, ledger, let_go, running
from running import is_there, until

from blueque import Retry
from blueque.model import keys

WORK = handlers.WORK

QUICK = ("--beat", "0.2s", "--lease", "1.5s")
Rewind = Callable[..., None]


@pytest.fixture
def remember(url: str) -> Iterator[Callable[[], Rewind]]:
    """Return a function that remembers everything in Redis, as a replica does that is cut off, and
    returns how to go back.

    That one takes functions of a pipeline that change more in the same transaction.
    """
    client = redis_py.Redis.from_url(url)

    def remember() -> Rewind:
        kept = {key: client.dump(key) for key in client.keys("*")}

        def go_back(*changes: Callable[[redis_py.client.Pipeline], object]) -> None:
            with client.pipeline() as pipe:
                pipe.delete(*client.keys("*"))
                for key, value in kept.items():
                    if value is not None:  # a marker that was taken just then
                        pipe.restore(key, 0, value)
                for change in changes:
                    change(pipe)
                pipe.execute()

        return go_back

    yield remember
    client.close()


def end(programs, task):
    """Let the task end, and wait until its listener has nothing more to do with it."""
    let_go(programs, task.id)
    done = ended(programs.client, task.id)
    until(
        (programs.directory / "spool" / f"{task.id}@1" / "reported").exists,
        what="the mark in the spool",
    )
    return done


def forget_start(task):
    """Return a change: the task has been reserved, and not started."""

    def change(pipe):
        pipe.hdel(keys.task(task.id), "pid", "pid_start", "boot", "ns", "started", "files")
        pipe.hset(keys.task(task.id), "status", "reserved")
        pipe.srem(keys.started("work"), keys.started_member(task.node, task.pid, task.id))

    return change


def only_pop(task):
    """Return a change of what was known before the task was reserved: it has been popped."""

    def change(pipe):
        pipe.lrem(keys.pending("work"), 0, task.id)
        pipe.lpush(keys.reserved("work", task.node), task.id)

    return change


def test_an_end_that_redis_has_lost_is_reported_again_while_the_listener_is_idle_and_its_lock_comes_free(
    programs, remember
):
    programs.listener("work:run", *QUICK, slots=2)
    task = begin(programs, lock="camera")
    following = programs.client.get_queue("work").enqueue("quick", lock="camera")
    go_back = remember()
    assert end(programs, task).status == "complete"
    assert ended(programs.client, following).status == "complete"

    go_back()

    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.attempt) == ("complete", "done", 1)
    assert done.token == task.token
    assert ended(programs.client, following).status == "complete"
    assert len(ledger(programs, task.id)) == 1 and is_sound(programs.client)


@pytest.mark.parametrize("is_registered", [True, False])
def test_an_end_that_redis_has_lost_is_reported_again_while_the_listener_has_another_task(
    programs, remember, is_registered
):
    programs.listener("work:run", *QUICK)
    task = begin(programs)
    other = programs.client.get_queue("work").enqueue("wait")
    programs.client.get_queue("work").set_settings({"max_running": 1})
    go_back = remember()
    end(programs, task)
    busy = running(programs, other)

    go_back(*[] if is_registered else [lambda pipe: pipe.delete(keys.listener("work", task.node))])

    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.token, is_there(busy.pid)) == (
        "complete",
        "done",
        task.token,
        True,
    )
    let_go(programs)
    assert ended(programs.client, other).token == busy.token
    assert [run.task for run in ledger(programs)] == [task.id, other] and is_sound(programs.client)


def test_a_cancellation_that_redis_has_lost_is_recorded_again(programs, remember):
    programs.listener("work:run", *QUICK)
    task = begin(programs)
    go_back = remember()
    programs.client.get_queue("work").cancel(task.id)
    assert ended(programs.client, task.id).status == "cancelled"
    until(
        (programs.directory / "spool" / f"{task.id}@1" / "reported").exists,
        what="the mark in the spool",
    )

    go_back()

    assert ended(programs.client, task.id).status == "cancelled"
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


@pytest.mark.parametrize("is_busy", [False, True])
def test_an_end_is_reported_again_when_redis_has_lost_the_start_but_not_the_reservation(
    programs, remember, is_busy
):
    programs.listener("work:run", *QUICK)
    task = begin(programs)
    other = programs.client.get_queue("work").enqueue("wait") if is_busy else None
    go_back = remember()
    end(programs, task)
    busy = running(programs, other) if other else None

    go_back(forget_start(task))

    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.attempt) == ("complete", "done", 1)
    assert done.token == task.token
    assert busy is None or is_there(busy.pid)
    assert len(ledger(programs, task.id)) == 1
    let_go(programs)
    assert other is None or ended(programs.client, other).status == "complete"
    assert is_sound(programs.client)


def test_a_running_task_of_which_redis_knows_the_reservation_and_not_the_start_runs_on(
    programs, remember
):
    listener = programs.listener("work:run", *QUICK)
    task = begin(programs)
    listener.says("start ")
    go_back = remember()

    go_back(forget_start(task))

    listener.says(f"reassert task={task.id}")
    assert is_there(task.pid)
    let_go(programs, task.id)
    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.token) == ("complete", "done", task.token)
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_a_process_that_has_the_pid_of_an_attempt_by_now_is_not_taken_for_it(programs, remember):
    programs.listener("work:run", *QUICK)
    task = begin(programs)
    go_back = remember()
    end(programs, task)
    stranger = programs.script("import time; time.sleep(600)")
    spool = programs.directory / "spool"
    # As if the mark could not be written, for the disk was full.
    os.link(spool / f"{task.id}@1" / "task", spool / "open" / f"{stranger.pid}-1")

    go_back(forget_start(task))

    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.token) == ("complete", "done", task.token)
    assert stranger.is_running and len(ledger(programs)) == 1 and is_sound(programs.client)


@pytest.mark.parametrize("is_at_its_end", [False, True])
def test_a_running_task_that_redis_has_lost_and_its_key_has_made_again_runs_on(
    programs, cli, is_at_its_end
):
    listener = programs.listener("work:run", *(() if is_at_its_end else QUICK))
    queue = programs.client.get_queue("work")
    task = running(programs, queue.enqueue("wait", key="nightly"))
    listener.says("start ")
    lose(cli, task)

    assert queue.enqueue("wait", key="nightly") == task.id

    if not is_at_its_end:
        listener.says(f"reassert task={task.id}")
        assert is_there(task.pid)
    let_go(programs, task.id)
    done = ended(programs.client, task.id)
    assert (done.status, done.token, done.attempt) == ("complete", task.token, 1)
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_a_running_task_that_a_person_deleted_makes_way_for_another_with_its_key(programs, cli):
    listener = programs.listener("work:run", *QUICK)
    queue = programs.client.get_queue("work")
    task = running(programs, queue.enqueue("wait", key="nightly"))
    lose(cli, task)

    queue.enqueue("quick", key="nightly")

    listener.says("no longer the owner: the task is another one")
    new = ended(programs.client, task.id)
    assert (new.parameters, new.result) == ("quick", "done") and new.token != task.token
    assert not is_there(task.pid)


def test_a_task_that_was_made_again_and_that_another_slot_starts_has_another_number(programs, cli):
    programs.listener("work:run", "--beat", "30s", "--lease", "5m", slots=2)
    queue = programs.client.get_queue("work")
    task = running(programs, queue.enqueue("wait", key="nightly"))
    lose(cli, task)

    queue.enqueue("wait", key="nightly")

    again = running(programs, task.id, attempt=2)
    assert again.pid != task.pid and is_there(task.pid)


def lose(cli, task):
    """Have Redis know nothing of a running task."""
    cli.delete(
        keys.task(task.id),
        keys.history(task.id),
        keys.started("work"),
        keys.reserved("work", task.node),
    )
    cli.zrem(keys.tasks("work"), task.id)


def test_an_attempt_is_ended_once_another_is_started_even_with_a_smaller_number(programs, cli):
    listener = programs.listener("work:run", *QUICK)
    again = Retry(max=1, backoff=0)
    task = running(
        programs,
        programs.client.get_queue("work").enqueue("fail_then_wait", retry=again),
        attempt=2,
    )

    # As if Redis had lost both attempts, and another host had been faster than our beat.
    cli.hset(keys.task(task.id), mapping={"attempt": 1, "token": "another", "node": "another_1"})

    listener.says("no longer the owner: the task is started")
    until(lambda: not is_there(task.pid), what="its end")
    assert programs.client.get_task(task.id).token == "another"


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_task_of_which_redis_knows_only_that_it_was_popped_runs_again_as_a_new_attempt(
    programs, remember, is_busy
):
    programs.listener("work:run", *QUICK)
    queue = programs.client.get_queue("work")
    queue.pause()
    task_id = queue.enqueue("wait", retry=Retry(max=0))
    go_back = remember()
    queue.resume()
    task = running(programs, task_id)
    end(programs, task)
    busy = begin(programs) if is_busy else None

    go_back(only_pop(task), lambda pipe: pipe.hdel("blueque_queue_work", "paused"))

    if busy is not None:
        until(
            lambda: programs.client.get_inspector().reserved("work", task.node) == [busy.id],
            what="its return",
        )
        assert is_there(busy.pid) and programs.client.get_task(task.id).status == "pending"
        let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.status, done.attempt, done.failures, done.interruptions) == (
        "complete",
        2,
        None,
        None,
    )
    assert [run.attempt for run in ledger(programs, task.id)] == [1, 2] and is_sound(
        programs.client
    )


def test_that_redis_has_lost_a_task_is_logged_once_and_again_when_it_is_back(
    programs, remember, cli
):
    listener = programs.listener("work:run", *QUICK)
    task = begin(programs)
    go_back = remember()
    # Registered anew since the task began: it may have been deleted on purpose, and is not put
    # back.
    cli.hset(f"blueque_listener_work_{task.node}", "instance", "another")
    cli.delete(
        f"blueque_task_{task.id}",
        "blueque_started_tasks_work",
        f"blueque_reserved_tasks_work_{task.node}",
    )
    listener.says(f"task={task.id} is gone from Redis; it runs on, and how it ends will stay in ")
    first = beat_of(programs.client, "work", task.node)
    until(lambda: beat_of(programs.client, "work", task.node) >= first + 3, what="three more beats")
    assert len(listener.lines("is gone from Redis")) == 1

    go_back()

    listener.says(f"Redis has task={task.id} again after ")
    let_go(programs)
    assert ended(programs.client, task.id).result == "done"
    assert len(listener.lines("is gone from Redis")) == 1 and is_sound(programs.client)


def test_an_attempt_whose_end_redis_has_lost_and_whose_files_are_removed_is_lost(
    programs, remember
):
    programs.listener("work:run", *QUICK)
    task = begin(programs)
    go_back = remember()
    end(programs, task)
    shutil.rmtree(programs.directory / "spool" / f"{task.id}@1")

    go_back()

    lost = ended(programs.client, task.id)
    assert (lost.status, lost.error_type, lost.attempt) == ("failed", "lost", 1)
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_a_task_whose_start_and_end_redis_has_lost_gets_a_new_attempt_number_where_its_files_are(
    programs, remember
):
    programs.listener("work:run", *QUICK)
    queue = programs.client.get_queue("work")
    queue.pause()
    task_id = queue.enqueue("quick", retry=Retry(max=0))
    go_back = remember()
    queue.resume()
    assert ended(programs.client, task_id).attempt == 1
    until(
        (programs.directory / "spool" / f"{task_id}@1" / "reported").exists,
        what="the mark in the spool",
    )

    go_back()
    queue.resume()

    again = ended(programs.client, task_id)
    assert (again.status, again.attempt, again.failures, again.interruptions) == (
        "complete",
        2,
        None,
        None,
    )
    assert [run.attempt for run in ledger(programs)] == [1, 2]
    spool = programs.directory / "spool"
    assert (spool / f"{task_id}@1").is_dir() and os.listdir(spool / task_id) == ["2"]
