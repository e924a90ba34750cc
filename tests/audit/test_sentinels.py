"""blueque.audit.sentinels, and the attention for replicas: what a real service behind Sentinel shows."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis as redis_py
from running import until
from sentinels import Sentinels, watched

from blueque import Client
from blueque.audit import server_check
from blueque.audit.doctor import Doctor
from blueque.queries import overview
from blueque.sentences.attention import concerns


@pytest.fixture
def service(tmp_path) -> Iterator[Sentinels]:
    with watched(tmp_path, 2, 3) as service:
        yield service


def checked(service: Sentinels) -> dict[str, tuple[str, str]]:
    """Return level and sentence of each check of the doctor; of a name that comes twice, the last."""
    with closing(Client(service.url)) as client:
        found = Doctor(client.connections).check()
        return {check.name: (check.level, check.sentence) for check in found}


def attention(service: Sentinels) -> dict[str, str]:
    with closing(Client(service.url)) as client:
        found = concerns(overview.overview(client.connections))
        return {concern.code: concern.sentence for concern in found}


def test_what_a_failover_would_lose_or_do_is_judged_as_sentinel_sees_it(service, monkeypatch):
    primary, *replicas = service.servers.values()
    with (
        redis_py.Redis(port=primary.port, decode_responses=True) as admin,
        redis_py.Redis(port=replicas[0].port) as first,
    ):
        sentence = "3 Sentinels watch it, and they agree."
        assert checked(service)["sentinel"] == ("ok", sentence)
        assert checked(service)["min-replicas-to-write"][0] == "warn"
        admin.config_set("min-replicas-to-write", 2)
        assert not {"min-replicas-to-write", "replica-priority"} & checked(service).keys()

        first.config_set("replica-priority", 10)
        until(
            lambda: "replica-priority" in checked(service), what="that Sentinel knows the priority"
        )
        assert f"127.0.0.1:{replicas[0].port}: 10" in checked(service)["replica-priority"][1]
        assert "min-replicas-to-write" not in attention(service)

        admin.config_set("min-replicas-max-lag", 60)  # or it would refuse changes before
        monkeypatch.setattr(server_check, "BEHIND", 1)
        os.kill(replicas[1].pid, signal.SIGSTOP)
        until(lambda: "replica-behind" in attention(service), what="that the replica lags")
        said = attention(service)["replica-behind"]
        assert said.startswith(f"replica 127.0.0.1:{replicas[1].port} is ")
        assert "min-replicas-max-lag" in said


def test_sentinels_that_cannot_agree_are_a_failure(service):
    service.lose_sentinels(2)

    until(lambda: checked(service)["sentinel"][0] == "fail", what="that the last one misses them")


def test_sentinel_without_a_replica_or_other_sentinels_is_pointed_at(tmp_path):
    with watched(tmp_path, 0, 1) as service:
        assert "Start a server with replicaof" in attention(service)["no-replica"]
        assert checked(service)["no-replica"][0] == "warn"
        level, sentence = checked(service)["sentinel"]
        assert (level, sentence.partition(":")[0]) == ("warn", "1 Sentinel watches it")
