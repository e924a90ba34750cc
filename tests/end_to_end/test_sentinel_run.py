"""Listeners behind Sentinel: tasks run on while the primary is killed, stands still or is replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import redis as redis_py
from handlers import WORK, begin, ended, ledger, let_go
from running import Programs
from sentinels import Sentinels, watched

from blueque.system.embedded_redis import Server

TASKS = 6


@pytest.fixture
def service(tmp_path) -> Iterator[Sentinels]:
    with watched(tmp_path, 2, 3) as service:
        yield service


def kill(service: Sentinels, primary: Server) -> None:
    primary.kill()


def freeze(service: Sentinels, primary: Server) -> None:
    os.kill(primary.pid, signal.SIGSTOP)


def replace(service: Sentinels, primary: Server) -> None:
    service.fail_over()


@pytest.mark.parametrize("fault", [kill, freeze, replace])
def test_running_tasks_end_once_at_the_new_primary(service, tmp_path, fault):
    with Programs(service.url, tmp_path) as programs:
        programs.write(WORK)
        listener = programs.listener("work:run", "--beat", "0.5s", slots=TASKS)
        tasks = [begin(programs, "wait") for _ in range(TASKS)]
        primary = service.primary()
        with redis_py.Redis(port=primary.port) as admin:
            assert admin.wait(2, 10_000) == 2  # replicas have what was acknowledged

        fault(service, primary)
        service.other_than(primary)
        let_go(programs)

        done = [ended(programs.client, task.id, 40) for task in tasks]
        assert [(task.status, task.attempt) for task in done] == [("complete", 1)] * TASKS
        assert sorted(line.task for line in ledger(programs)) == sorted(task.id for task in tasks)
        assert listener.stop() == 0
