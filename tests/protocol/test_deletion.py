"""Deletion leaves nothing of a task, whatever it was, wherever it ran, however it ended, and
whoever deletes it.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
from handlers import WORK, begin, ended, is_sound
from running import keeper_of, until
from transactions import protocol

from blueque import Retry
from blueque.model import keys
from blueque.model.ids import id_of_key
from blueque.model.units import Keep
from blueque.protocol.pruning import BELONGINGS
from blueque.recovery.retention import Retention

QUICK = ("--beat", "0.2s", "--lease", "0.6s", "--lost-after", "30s")
# More than handlers.WORK does: what a task may leave in keys of its own.
TALK = """
    def talk(task):
        note(task)
        for number in range(40):
            print("line", number)
        task.progress(1, 2, "half")
        return "done"
"""


@pytest.fixture
def programs(programs):
    programs.write(WORK + TALK)
    return programs


def every_ending(programs):
    """Have tasks of a queue run and end in every way there is; return their ids."""
    client, queue = programs.client, programs.client.get_queue("work")
    listener = programs.listener("work:run", *QUICK, slots=2)
    queue.set_settings({"max_running": 9})
    ids = [
        queue.enqueue("talk"),
        queue.enqueue("talk", priority=5, lock="a lock", time_limit=60),
        queue.enqueue("fail"),
        queue.enqueue("fail_at_first", retry=Retry(max=2, backoff=0)),
        queue.enqueue("kill_itself"),
        queue.enqueue("talk", key="forgotten", keep=0),
        queue.enqueue("talk", key="remembered", keep="1h"),
        queue.schedule("talk", time.time() + 0.1),
        queue.enqueue("talk", lock=("two", 2)),
    ]
    queue.enqueue_many(["talk"] * 3)
    never = queue.schedule("talk", time.time() + 1000)
    queue.cancel(never)
    for task_id in ids:
        ended(client, task_id)
    stopped = begin(programs).id
    queue.cancel(stopped)
    ended(client, stopped)
    lost = begin(programs, lock="a lock")
    slots = listener.slots()
    # Without its keeper, too, which would tell the next listener how the task has ended.
    for pid in (listener.pid, *slots, *map(keeper_of, slots), lost.pid):
        os.kill(pid, signal.SIGKILL)
    again = programs.listener("work:run", *QUICK)
    assert ended(client, lost.id).error_type == "lost"
    queue.enqueue_many(["talk", "talk"], keys=["one", "two"], group="a group")
    until(lambda: len(ended_ids(client)) == len(ids) + 3 + 3 + 2, what="the end of all")
    return again, ended_ids(client)


def ended_ids(client):
    listing = client.get_inspector().listing(["work"], ("complete", "failed", "cancelled"), 1000)
    return [task.id for task in listing.tasks]


def delete_all(client, ids):
    """Delete every second one as a person does, the rest as listeners do."""
    for task_id in ids[::2]:
        client.get_queue("work").delete_task(client.get_task(task_id))
    retention = Retention(
        client.connections,
        {"work": dict.fromkeys(("complete", "failed", "cancelled"), Keep(age=0.001))},
    )
    until(lambda: not retention.step() and not ended_ids(client), what="the deletion of all")


def test_when_all_tasks_are_deleted_the_queue_is_as_if_there_had_never_been_any(
    programs, state, everything
):
    programs.listener("work:run", *QUICK).stop()
    fresh = state()
    # The name of a queue that a listener has served stays, so that `blueque status` shows it.
    assert fresh == {"blueque_queues": {"work": 0.0}}

    listener, ids = every_ending(programs)
    by_ending = {programs.client.get_task(task_id).status for task_id in ids}
    assert by_ending == {"complete", "failed", "cancelled"}
    assert len([key for key in everything() if key.startswith(keys.history(""))]) == len(ids)
    delete_all(programs.client, ids)

    assert is_sound(programs.client)
    queue = programs.client.get_queue("work")
    queue.set_settings({"max_running": None})  # which also wakes the listener
    until(lambda: "blueque_wake_work" not in state(), what="the listener to wake up")
    listener.stop()
    left = state()
    # A group and a key stay as long as they are to be remembered. All else was of a task.
    assert set(left) - set(fresh) == {
        "blueque_groups",
        "blueque_group_a group",
        "blueque_joined_a group",
        f"blueque_key_{id_of_key('work', 'remembered')}",
    }
    # Its numbers, which name no task, stay.
    assert [key for key in everything() if any(task_id in key for task_id in ids)] == [
        f"blueque_key_{id_of_key('work', 'remembered')}"
    ]
    assert programs.client.group("a group").delete()
    assert [key for key in state() if key not in fresh] == [
        f"blueque_key_{id_of_key('work', 'remembered')}"
    ]
    assert state()["blueque_queues"] == fresh["blueque_queues"]


def test_a_task_that_a_listener_of_1_0_0_takes_is_not_purged_before_it_has_said_so(
    client, redis, cli, overtaken
):
    taken = client.get_queue("video").enqueue("taken")
    overtaken(
        lambda: cli.rpoplpush("blueque_pending_tasks_video", "blueque_reserved_tasks_video_old_1")
    )
    assert protocol.purge(redis, "video", [taken]) == 0
    assert client.get_task(taken).parameters == "taken"


def test_each_key_that_belongs_to_a_task_has_its_sign_in_the_hash():
    assert [*BELONGINGS] == [*keys.belongings("")]
