"""A listener whose changes a replica has to confirm, while no replica does."""

from __future__ import annotations

import os
import signal

import redis as redis_py
from handlers import WORK, beat_of, begin, ended, ledger, let_go
from running import Programs, until
from sentinels import replicated

ASKING = {"BLUEQUE_REPLICAS": "1", "BLUEQUE_REPLICAS_TIMEOUT": "50ms"}


def test_an_end_that_no_replica_confirms_waits_in_the_spool(tmp_path):
    with replicated(1) as (primary, replica), Programs(primary.url, tmp_path, ASKING) as programs:
        programs.write(WORK)
        listener = programs.listener("work:run", "--beat", "0.1s")
        task = begin(programs, "wait")
        with redis_py.Redis(port=primary.port) as admin:
            assert admin.wait(1, 10_000) == 1
        os.kill(replica.pid, signal.SIGSTOP)
        let_go(programs)

        listener.says("end: it is in Redis, but no replica has confirmed it within 0.05 s")
        before = beat_of(programs.client, "work", task.node)
        until(lambda: beat_of(programs.client, "work", task.node) > before + 3, what="beats")
        assert programs.client.get_task(task.id).status == "complete"
        assert "complete task=" not in listener.log
        waiting = programs.client.get_queue("work").enqueue("quick")
        os.kill(replica.pid, signal.SIGCONT)

        listener.says("Redis no longer waits for replicas after")
        assert ended(programs.client, waiting).status == "complete"
        assert [run.task for run in ledger(programs)] == [task.id, waiting]
        assert listener.log.count("no replica has confirmed") == 1
        assert listener.log.count("Redis no longer waits") == 1
        assert listener.stop() == 0
