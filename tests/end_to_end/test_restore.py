"""A backup is put back under running tasks, as docs/production.md says: the queues are paused before
any listener sees it.
"""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest
import redis as redis_py
from handlers import WORK, begin, ended, is_sound, ledger, let_go, running
from running import Programs, is_there, until

from blueque import Client
from blueque.system.embedded_redis import running_server


@pytest.fixture
def redis_server():
    with running_server() as server:
        yield server


@pytest.fixture
def programs(redis_server, tmp_path):
    with Programs(redis_server.url, tmp_path) as programs:
        programs.write(WORK)
        yield programs


def back_up(server, tmp_path):
    with redis_py.Redis.from_url(server.url) as admin:
        admin.save()
    shutil.copy(server.directory / "dump.rdb", tmp_path / "backup.rdb")


def put_back(server, tmp_path):
    """Pause the queue in another server with the backup, and start Redis with what that has saved."""
    server.kill()
    with running_server() as apart:
        apart.stop()
        shutil.copy(tmp_path / "backup.rdb", apart.directory / "dump.rdb")
        apart.start()
        with closing(Client(apart.url)) as client, redis_py.Redis.from_url(apart.url) as admin:
            client.get_queue("work").pause("restored")
            admin.save()
        shutil.copy(apart.directory / "dump.rdb", server.directory / "dump.rdb")
    server.start()


def test_after_a_restore_running_tasks_end_once_and_what_has_run_since_waits_for_a_person(
    programs, redis_server, tmp_path
):
    queue, client = programs.client.get_queue("work"), programs.client
    programs.listener("work:run", "--beat", "0.3s", slots=3, on_term="leave")
    runs, ends = begin(programs), begin(programs)
    queue.pause("until the backup is made")
    starts, repeats = (queue.enqueue(what) for what in ("wait", "quick"))
    back_up(redis_server, tmp_path)
    queue.resume()
    started = running(programs, starts)
    let_go(programs, ends.id)
    ended(client, ends.id)
    ended(client, repeats)
    lost, unknown = queue.enqueue("quick"), begin(programs)
    ended(client, lost)

    put_back(redis_server, tmp_path)

    # What ran and had ended: its listener tells it again. What runs: its listener puts it back.
    assert ended(client, ends.id).attempt == 1
    for task in (runs, started, unknown):
        until(lambda task=task: client.get_task(task.id).pid == task.pid, what="the same process")
        assert is_there(task.pid)
    # What waited in the backup, and has run since, waits again: its files say so.
    assert client.get_task(repeats).status == "pending" and client.get_task(lost).status is None
    assert (tmp_path / "spool" / f"{repeats}@1" / "exit").exists()
    queue.cancel(repeats)
    queue.resume()
    let_go(programs)
    for task in (runs, started, unknown):
        assert ended(client, task.id).attempt == 1
    assert len(ledger(programs)) == len({line.task for line in ledger(programs)}) == 6
    assert is_sound(client)
