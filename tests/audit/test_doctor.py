"""`blueque doctor`: what it says of a server and of what is in it, what it repairs, and with which
code it ends.
"""

from __future__ import annotations

import json
import os
import time

import in_process
import pytest
import redis as redis_py
from running import until
from transactions import protocol

from blueque import Client, RedisAway
from blueque.audit import server_check
from blueque.audit.doctor import Doctor
from blueque.model import keys
from blueque.model.new_task import NewTask
from blueque.protocol.archiving import BatchRef
from blueque.queries.overview import overview
from blueque.sentences.attention import concerns
from blueque.sentences.concern import URGENT
from blueque.system.embedded_redis import running_server

DOCTOR = ["doctor", "--settle", "0.01"]


@pytest.fixture(scope="session")
def _kept_server():
    with running_server("--appendonly", "yes") as server:
        yield server


@pytest.fixture
def server(_kept_server):
    """An empty server with which nothing is wrong; what a test has set is set back."""
    with redis_py.Redis.from_url(_kept_server.url) as client:
        client.flushall()
        yield _kept_server
        for name, value in {
            "maxmemory": "0",
            "maxmemory-policy": "noeviction",
            "min-replicas-to-write": "0",
        }.items():
            client.config_set(name, value)


@pytest.fixture
def environ(server):
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BLUEQUE_", "REDIS_", "COLUMNS"))
    }
    return kept | {"BLUEQUE_REDIS_URL": server.url, "TZ": "UTC", "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def doctor(environ):
    """Run the program without a terminal."""

    def doctor(*arguments, **more):
        return in_process.run([*DOCTOR, *arguments], environ | more)

    return doctor


def marks(result):
    return [line[:5].rstrip() for line in result.stdout.splitlines()[:-1]]


def levels(result):
    return {check["name"]: check["level"] for check in json.loads(result.stdout)["checks"]}


def damage(redis, cli):
    """Take a task from the line for a listener of which nobody knows, and put an id in line that is
    nobody's.
    """
    protocol.enqueue(redis, "video", "t1", "{}", 1.0, {"parameters_encoding": "json"})
    cli.lmove(keys.pending("video"), keys.reserved("video", "host_9"), "LEFT", "LEFT")
    cli.lpush(keys.pending("video"), "nobody")


def test_a_server_with_a_replica_that_need_not_have_a_change_is_warned_of(server, doctor, cli):
    before = {
        name: cli.config_get(name)[name] for name in ("repl-diskless-sync", "min-replicas-to-write")
    }
    cli.config_set("repl-diskless-sync", "no")  # it would wait 5 s for other replicas
    with running_server("--replicaof", f"127.0.0.1 {server.port}"):
        until(
            lambda: cli.info("replication").get("slave0", {}).get("state") == "online",
            what="the replica",
        )
        results = {}
        for least in ("0", "1", "2"):
            cli.config_set("min-replicas-to-write", least)
            results[least] = doctor()
        cli.config_set("min-replicas-to-write", "1")
        unconfirmed = doctor(BLUEQUE_REPLICAS="2")
    for name, value in before.items():
        cli.config_set(name, value)

    hint = (
        "warn  it has 1 replica, and min-replicas-to-write is 0: a failover may lose tasks that were accepted seconds "
        "before. Set min-replicas-to-write 1 and min-replicas-max-lag.\n"
    )
    refuses = "FAIL  only 1 replica keeps up, and min-replicas-to-write is 2: it refuses changes (NOREPLICAS).\n"
    assert [result.returncode == 0 for result in results.values()] == [False, True, False]
    assert [hint in result.stdout for result in results.values()] == [True, False, False]
    assert [refuses in result.stdout for result in results.values()] == [False, False, True]
    too_few = "FAIL  it has 1 replica, and [redis] replicas is 2: no change is confirmed (NotReplicated).\n"
    assert too_few in unconfirmed.stdout


# What is in it


def test_a_batch_that_is_open_for_more_than_a_day_is_named_with_what_ends_it(doctor, redis, cli):
    protocol.enqueue(redis, "a b", "t1", "1", 1.0, {"parameters_encoding": "json"})
    for age, count in [(80_000, 0), (90_000, 1)]:
        cli.delete(keys.archive("a b"))
        place = {"directory": "/data/archive", "archive": "a"}
        protocol.claim_batch(
            redis,
            BatchRef("a b", "b-1", "w"),
            {"by": "ann@host", "pid": 7},
            place,
            time.time() - age,
        )

        result = doctor()

        assert (
            result.stdout.count(
                "warn  queue a b: batch b-1 of its archive is claimed, and ann@host has not continued it for 1 d 1 h. To continue: "
                "blueque archive 'a b' /data/archive\n"
            )
            == count
        )
        assert (result.returncode == 75) == bool(count)


def test_fix_has_tasks_told_and_names_a_circle_for_a_person(doctor, redis, cli):
    protocol.enqueue(redis, "video", "root", "p", 1.0)
    for task, parent in (("first", "root"), ("second", "first"), ("third", "root")):
        protocol.enqueue_after(redis, [NewTask(task, "video", "p", {}, {parent: "any"})], 1.0)
    cli.hset(keys.conditions("first"), "second", "ok")
    cli.hset(keys.task("second"), "dependents", 1)
    cli.zadd(keys.dependents("second"), {"first": 1})
    protocol.cancel(redis, "video", "root", "me", None, time.time())
    cli.delete(keys.UNSETTLED_TASKS)

    result = doctor("--fix")

    assert result.returncode == 75
    assert "fixed: task root is cancelled, and task first, which waits for it, was not told." in (
        result.stdout
    )
    assert "tasks first, second wait for each other, and none of them can start" in result.stdout
    assert cli.zrange(keys.UNSETTLED_TASKS, 0, -1) == ["root"]


def test_looking_changes_nothing(doctor, redis, cli, state):
    damage(redis, cli)
    before = state()

    doctor()

    assert state() == before


def test_a_due_task_that_nobody_can_put_in_line_is_named_with_what_would(doctor, redis):
    protocol.schedule(
        redis,
        "video",
        "t1",
        "1",
        time.time() - 15,
        time.time() - 400,
        {"parameters_encoding": "json"},
    )

    result = doctor()

    assert result.returncode == 75
    assert "warn  queue video: 1 task is overdue by " in result.stdout
    assert "start blueque-scheduler.\n" in result.stdout


@pytest.mark.parametrize(
    ("has", "said"),
    [
        ("gpu=2", "the most gpu that a listener of that queue has is 2, gpu-1_1."),
        ("gpu=5", "no listener of that queue has any memory."),
        (None, "no listener of that queue has all of it."),
    ],
)
def test_a_task_that_fits_no_listener_is_told_in_the_words_of_who_asked_for_it(
    doctor, redis, has, said
):
    for number, resources in enumerate([has] if has else ["gpu=5", f"memory={8 << 30}"], 1):
        protocol.register(
            redis, "video", f"gpu-1_{number}", "i1", {"resources": resources}, time.time()
        )
    protocol.enqueue(
        redis,
        "video",
        "t1",
        "1",
        time.time(),
        {"parameters_encoding": "json", "needs": f"gpu=5,memory={8 << 30}"},
    )

    shown = doctor().stdout

    assert (
        f"1 task of queue video needs gpu=5, memory=8GiB and cannot start, the first is t1: {said}\n"
        in shown
    )


def test_a_task_whose_payload_key_no_listener_has_names_the_key(doctor, redis):
    protocol.register(redis, "video", "gpu-1_1", "i1", {"resources": "gpu=2"}, time.time())
    needs = {"parameters_encoding": "json", "needs": "key.k1.0a1b2c3d=1"}
    protocol.enqueue(redis, "video", "t1", "1", time.time(), needs)

    shown = doctor().stdout

    sentence = (
        "1 task of queue video needs payload key k1.0a1b2c3d and cannot start, the first is t1: "
    )
    assert f"{sentence}no listener of that queue has that key.\n" in shown


def test_a_schedule_that_a_clock_of_redis_took_ahead_is_named(doctor, client, cli):
    client.set_schedule("hourly", queue="video", every="1h")
    later = int(time.time()) // 3600 * 3600 + 864000
    cli.hset(keys.schedule("hourly"), mapping={"last": later, "at": later + 3600})

    lines = doctor().stdout.splitlines()

    (said,) = [line for line in lines if "the clock of Redis was ahead" in line]
    assert said.startswith("warn  schedule hourly: it makes no task for ")


def test_machines_that_share_a_host_name_are_named_by_their_boots(doctor, redis):
    now = time.time()
    nodes = {
        "gpu_1": {"boot": "aaaaaaaa-1"},
        "gpu_2": {"boot": "aaaaaaaa-1"},
        "gpu-0a1b2c_1": {"boot": "bbbbbbbb-2"},
        "cpu_1": {"boot": "cccccccc-3"},
        "cpu_2": {},
        "io_1": {"boot": "aaaaaaaa-1"},
    }
    for node, facts in nodes.items():
        protocol.register(
            redis, "video", node, f"life of {node}", {"beat_every": 10, "lease": 60} | facts, now
        )
    for age in (25, 4000):  # cpu has started again meanwhile
        facts = {"beat_every": 10, "lease": 60, "boot": f"dddddddd-{age}"}
        protocol.register(redis, "video", f"cpu_{age}", f"life {age}", facts, now - age)

    result = doctor()

    assert [line for line in result.stdout.splitlines() if "machines are called" in line] == [
        "warn  2 machines are called gpu (boot ids aaaaaaaa, bbbbbbbb): "
        "give each a name of its own with --host or BLUEQUE_HOST."
    ]


def test_json_is_one_object_with_everything(doctor, redis, cli, server):
    damage(redis, cli)

    result = doctor("--json")

    told = json.loads(result.stdout)
    assert (result.returncode, told["blueque"], told["kind"]) == (75, 2, "doctor")
    assert told["redis"] == {"url": server.url, "origin": "BLUEQUE_REDIS_URL"}
    assert {check["level"] for check in told["checks"]} == {"ok"}
    assert (told["queues"], told["tasks"], told["fixed"]) == (1, 1, [])
    held = {name: value for name, value in told["findings"][0].items() if name != "sentence"}
    assert held == {
        "code": "held",
        "level": "fail",
        "key": keys.reserved("video", "host_9"),
        "task": "t1",
        "queue": "video",
        "node": "host_9",
        "fix": "recover",
    }


def test_json_tells_what_was_fixed(doctor, redis, cli):
    damage(redis, cli)

    told = json.loads(doctor("--json", "--fix").stdout)

    assert [finding["code"] for finding in told["fixed"]] == ["held", "no_hash"]
    assert told["findings"] == []


def test_what_comes_from_redis_cannot_steer_a_terminal(doctor, redis, cli):
    cli.lpush(keys.pending("video"), "\x1b[31m\nred")

    result = doctor()

    assert "\x1b" not in result.stdout
    assert r"\x1b[31m\nred" in result.stdout


def test_a_moment_to_settle_has_to_be_a_duration(doctor):
    assert doctor("--settle", "soon").returncode == 2


def test_without_a_server_the_code_is_69(doctor):
    result = doctor("--redis-url", "redis://127.0.0.1:1/0")

    assert (result.returncode, result.stdout) == (69, "")


# The server


def test_a_server_that_may_delete_tasks_is_warned_of(doctor, cli):
    cli.config_set("maxmemory-policy", "allkeys-lru")

    result = doctor()

    assert result.returncode == 75
    assert (
        "warn  maxmemory-policy is allkeys-lru: Redis may delete tasks when its memory is full."
        in result.stdout
    )


def test_a_server_that_is_nearly_full_is_warned_of(doctor, cli):
    cli.config_set("maxmemory", str(int(cli.info("memory")["used_memory"] * 1.1)))

    assert levels(doctor("--json"))["memory"] == "warn"


def test_a_server_without_a_file_is_warned_of(doctor):
    with running_server() as other:
        assert levels(doctor("--json", "--redis-url", other.url))["persistence"] == "warn"


def test_a_server_that_cannot_write_its_file_is_urgent_and_says_which_error_comes(tmp_path):
    directory = tmp_path / "gone"
    directory.mkdir()
    with (
        running_server("--dir", str(directory), "--save", "3600 1") as other,
        redis_py.Redis.from_url(other.url) as admin,
        Client(other.url, patience=0) as client,
    ):
        directory.rmdir()
        admin.bgsave()
        until(
            lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err",
            what="that the snapshot fails",
        )

        (concern,) = concerns(overview(client.connections))
        assert concern.code in URGENT and "MISCONF" in concern.sentence
        with pytest.raises(RedisAway, match="MISCONF"):
            client.get_queue("video").enqueue("1")


def test_what_a_user_may_not_ask_for_is_unknown_and_no_failure(doctor, server, cli):
    cli.acl_setuser(
        "half",
        enabled=True,
        nopass=True,
        categories=["+@all"],
        commands=["-info", "-config"],
        keys="*",
    )

    result = doctor("--redis-url", server.url.replace("redis://", "redis://half:x@"))

    assert (result.returncode, marks(result).count("?")) == (0, 1)


def test_a_user_who_may_not_use_multi_is_told(doctor, server, cli):
    cli.acl_setuser(
        "bare", enabled=True, nopass=True, categories=["+@all"], commands=["-multi"], keys="*"
    )

    told = levels(
        doctor("--json", "--redis-url", server.url.replace("redis://", "redis://bare:x@"))
    )

    assert told["transactions"] == "fail"


def test_a_user_who_may_not_scan_is_told(doctor, server, cli):
    cli.acl_setuser(
        "blind", enabled=True, nopass=True, categories=["+@all"], commands=["-scan"], keys="*"
    )

    result = doctor("--redis-url", server.url.replace("redis://", "redis://blind:x@"))

    assert (result.returncode, "Traceback" in result.stderr) == (77, False)


FACTS = {
    "redis_version": "7.2.4",
    "role": "master",
    "used_memory": "50",
    "maxmemory": "100",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "rdb_last_bgsave_status": "ok",
}


@pytest.mark.parametrize(
    ("facts", "name", "level"),
    [
        ({"redis_version": "6.2.0"}, "version", "ok"),
        ({"redis_version": "6.0.16"}, "version", "fail"),
        ({"redis_version": "10.0.0"}, "version", "ok"),
        ({"redis_version": ""}, "version", "unknown"),
        ({"valkey_version": "8.1.0"}, "version", "ok"),
        ({"role": "slave"}, "role", "fail"),
        ({"cluster_enabled": "1"}, "cluster", "fail"),
        ({"used_memory": "80"}, "memory", "ok"),
        ({"used_memory": "81"}, "memory", "warn"),
        ({"maxmemory": "0"}, "memory", "ok"),
        ({"maxmemory": "0", "total_system_memory": "60"}, "memory", "warn"),
        ({"maxmemory_policy": "volatile-lru"}, "maxmemory-policy", "warn"),
        ({"aof_enabled": "0"}, "appendonly", "warn"),
        ({"aof_enabled": "0", "save": ""}, "persistence", "warn"),
        ({"slave0": "ip=h,port=1,state=online,lag=10"}, "appendonly", "ok"),
        ({"slave0": "ip=h,port=1,state=online,lag=11"}, "replica-behind", "warn"),
        ({"slave0": "ip=h,port=1,state=wait_bgsave,lag=0"}, "replica-behind", "warn"),
        ({"aof_last_write_status": "err"}, "aof-last-write-status", "fail"),
        ({"aof_last_bgrewrite_status": "err"}, "aof-last-bgrewrite-status", "fail"),
        ({"rdb_last_bgsave_status": "err"}, "rdb-last-bgsave-status", "fail"),
    ],
)
def test_what_a_server_tells_of_itself_is_judged(facts, name, level):
    told = {check.name: check.level for check in server_check.judge(FACTS | facts, "")}

    assert told.pop(name) == level
    assert set(told.values()) == {"ok"}


@pytest.mark.parametrize(
    ("skew", "level"), [(1.5, "ok"), (-1.5, "ok"), (3.0, "warn"), (-3.0, "warn")]
)
def test_clocks_that_are_more_than_two_seconds_apart_are_warned_of(redis, skew, level):
    told = {
        check.name: check.level for check in server_check.check(redis, lambda: time.time() + skew)
    }

    assert told["clock"] == level


def test_a_checkup_does_not_loosen_the_guard_of_a_spare_id(server, client, cli):
    """An EXEC ends every watch on its connection, and with it that of the next enqueue's spare id."""
    queue = client.get_queue("video")
    queue.enqueue("p")
    assert client.connections.look_ahead is not None
    spare = client.connections.look_ahead.task

    Doctor(client.connections).check()
    cli.hset(keys.task(spare), "status", "taken")
    queue.enqueue("p")

    assert cli.hgetall(keys.task(spare)) == {"status": "taken"}


def test_a_key_of_a_wrong_type_hides_no_other_check(client, redis, cli):
    protocol.schedule(
        redis,
        "video",
        "t1",
        "1",
        time.time() - 15,
        time.time() - 400,
        {"parameters_encoding": "json"},
    )
    cli.set(keys.complete("video"), "of another program")

    checks = Doctor(client.connections).check()

    assert [check.level for check in checks if check.name == "due"] == ["warn"]
