"""Listeners behind Sentinel: fifty tasks run on while one primary after the other is killed, stands
still, is replaced or cut off.
"""

from __future__ import annotations

from handlers import WORK, ended, is_sound, ledger, let_go, running
from running import Programs, patched, until
from sentinels import FAULTS, WHOLE, watched

SLOTS = {"one": 20, "two": 20, "three": 10}  # by host
QUEUE = "work"
# A connection that is used asks so often which server is the primary.
OFTEN = patched({"connection.sentinel.ASK_EVERY": 0.5})


def test_fifty_running_tasks_end_once_whatever_happens_to_their_primaries(tmp_path):
    with (
        watched(tmp_path, 2, 3, by_wire=True) as service,
        Programs(service.url, tmp_path, OFTEN) as programs,
    ):
        service.take_for_dead_after(10_000)  # while fifty processes start
        programs.write(WORK)
        listeners = [
            programs.listener("work:run", "--beat", "0.5s", "--host", host, slots=slots, spool=host)
            for host, slots in SLOTS.items()
        ]
        queue = programs.client.get_queue(QUEUE)
        ids = [queue.enqueue("wait") for _ in range(sum(SLOTS.values()))]
        tasks = [running(programs, task) for task in ids]
        service.take_for_dead_after(2000)

        for fault in FAULTS:
            until(service.is_whole, WHOLE, "replicas that have all")
            service.strike(fault, QUEUE)

        now = [programs.client.get_task(task.id) for task in tasks]
        assert [(one.status, one.pid, one.token) for one in now] == [
            ("started", task.pid, task.token) for task in tasks
        ]
        let_go(programs)
        done = [ended(programs.client, task.id) for task in tasks]
        assert {(task.status, task.attempt) for task in done} == {("complete", 1)}
        assert sorted(line.task for line in ledger(programs)) == sorted(ids)
        assert is_sound(programs.client)
        assert [listener.stop() for listener in listeners] == [0] * len(SLOTS)
