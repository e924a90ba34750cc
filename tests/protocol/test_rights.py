"""What a Redis user may not do: seen when a program starts, and later said once. And a Redis
Cluster, which is refused.
"""

from __future__ import annotations

import os

import forked
import pytest
import redis as redis_py
from handlers import beat_of, make_due
from running import outcome, patched, until

from blueque import Client, RedisRefused
from blueque.cli.exits import explain
from blueque.model import keys
from blueque.protocol.permissions import ROLES, lacking, require_rights
from blueque.system.embedded_redis import Server

# What programs do without.
OPTIONAL = {"auth", "client|tracking", "hello", "ping", "publish", "role", "select", "type", "wait"}
LISTENER = ROLES["listener"].commands.keys() - OPTIONAL
SCHEDULER = ROLES["scheduler"].commands.keys() - OPTIONAL
WORK = """
    def work(task):
        return "done"
"""


@pytest.fixture
def user(cli):
    """Make a user who may do what each call says, and return the address with the user's name."""

    def user(*rules: str, name: str = "modest") -> str:
        cli.execute_command(
            "ACL", "SETUSER", name, "reset", "on", ">secret", "~blueque_*", "&*", *rules
        )
        return f"redis://{name}:secret@127.0.0.1:{cli.connection_pool.connection_kwargs['port']}/0"

    yield user
    cli.execute_command("ACL", "DELUSER", "modest", "keeper")


@pytest.fixture(autouse=True)
def _clean_log(cli):
    cli.acl_log_reset()


def await_beats(client, queue):
    """Wait for ten beats of the listener."""
    (node,) = client.get_inspector().listeners(queue)
    first = beat_of(client, queue, node)
    until(lambda: beat_of(client, queue, node) > first + 10, what="ten beats")


def of(names):
    return ["-@all", *[f"+{name}" for name in sorted(names)]]


@pytest.mark.parametrize("name", sorted(LISTENER))
def test_each_right_that_a_listener_needs_is_missed(user, state, name):
    client = Client(user(*of(LISTENER - {name})), patience=0)

    with pytest.raises(RedisRefused, match=f"(?i){name}") as refusal:
        require_rights(client.connections, "listener", ["video"])

    assert refusal.value.code == "NOPERM"
    assert explain(refusal.value, "").exit_code == 77
    assert state() == {}
    client.close()


def test_several_rights_that_are_missing_are_named_together(user):
    client = Client(user(*of(LISTENER - {"hset", "zadd"})), patience=0)

    with pytest.raises(RedisRefused, match=r"this user lacks, as listener: \+hset, \+zadd$"):
        require_rights(client.connections, "listener", ["video"])


def test_trying_the_rights_changes_nothing(user, state, client):
    client.get_queue("video").enqueue("in")
    before = state()

    require_rights(Client(user("+@all"), patience=0).connections, "listener", ["video"])

    assert state() == before


def test_nothing_is_tried_without_a_transaction(user, state, cli):
    modest = Client(user("+@all"), patience=0)
    modest.get_queue("video").enqueue("in")  # by a connection that has been seen to take a MULTI
    before = state()
    cli.execute_command("ACL", "SETUSER", "modest", "-multi")

    with pytest.raises(RedisRefused, match=r"(?i)multi"):
        require_rights(modest.connections, "listener", ["video"])

    assert state() == before


def test_a_user_for_the_keys_of_one_queue_is_enough_for_its_listener(programs, user, client):
    of_tasks = [f"{kind}_*" for kind in ("task", "log", "head", "history", "recent", "checkpoint")]
    patterns = [f"~blueque_{name}" for name in ("queues", *of_tasks, "*_video", "*_video_*")]
    programs.url = user("+@all", "resetkeys", *patterns)

    programs.listener("work:work", queue="video")

    assert outcome(client, client.get_queue("video").enqueue("fine")).status == "complete"
    with pytest.raises(RedisRefused, match="this user lacks, as listener: ~blueque_"):
        require_rights(Client(programs.url, patience=0).connections, "listener", ["audio"])


OF_VIDEO = [
    *(f"~{key}*" for key in (*keys.belongings(""), keys.key_kept(""), keys.packing(""))),
    *("~blueque_queues", "~blueque_*_video", "~blueque_*_video_*"),
]
OF_SCHEDULES = ["~blueque_schedules", "~blueque_schedule_*", "~blueque_occurrences_*"]


def test_a_listener_that_may_not_read_schedules_works_and_says_so_once(programs, user, client, cli):
    client.set_schedule("nightly", queue="video", every="1h", parameters="fine")
    make_due(cli, "nightly")
    programs.url = user("+@all", "resetkeys", *OF_VIDEO)
    listener = programs.listener("work:work", "--beat", "0.1", queue="video")
    listener.says("making no tasks of schedules")

    assert outcome(client, client.get_queue("video").enqueue("fine")).status == "complete"

    await_beats(client, "video")
    assert "made" not in client.get_schedule("nightly").record
    assert len(listener.lines("NOPERM")) == len(listener.lines("schedules")) == 1

    cli.execute_command("ACL", "SETUSER", "modest", *OF_SCHEDULES)

    until(lambda: client.get_schedule("nightly").record.get("made") == 1)
    listener.says("Redis no longer refuses ZRANGE")


@pytest.mark.parametrize("lacking", OF_SCHEDULES[1:])
def test_a_listener_that_may_read_a_part_of_schedules_says_so_once_for_all(
    programs, user, client, cli, lacking
):
    for number in range(5):
        client.set_schedule(f"s{number}", queue="video", every="1h", parameters="fine")
        make_due(cli, f"s{number}")
    patterns = [pattern for pattern in OF_SCHEDULES if pattern != lacking]
    programs.url = user("+@all", "resetkeys", *OF_VIDEO, *patterns)
    listener = programs.listener("work:work", "--beat", "0.1", queue="video")
    listener.says("making no tasks of schedules")

    assert outcome(client, client.get_queue("video").enqueue("fine")).status == "complete"
    assert len(listener.lines("NOPERM")) == 1


def test_a_user_for_one_queue_and_schedules_makes_the_tasks_of_its_queue(
    programs, user, client, cli
):
    client.set_schedule("ours", queue="video", every="1h", parameters="fine")
    client.set_schedule("theirs", queue="audio", every="1h", parameters="fine")
    for name in ("ours", "theirs"):
        make_due(cli, name)
    programs.url = user("+@all", "resetkeys", *OF_VIDEO, *OF_SCHEDULES)

    listener = programs.listener("work:work", "--beat", "0.1", queue="video")

    until(lambda: client.get_schedule("ours").record.get("made") == 1)
    assert outcome(client, client.get_schedule("ours").record["current"]).status == "complete"
    assert client.get_schedule("theirs").record.get("made", 0) == 0
    assert not listener.lines("NOPERM")


def test_a_scheduler_that_may_not_read_schedules_says_so_once(programs, user, client, cli):
    client.set_schedule("nightly", queue="video", every="1h", parameters="fine")
    patched_look = patched({"scheduler.scheduler.LOOK_AT_ALL": 0.1})
    of_all = ("~blueque_unsettled_*", "~blueque_groups", "~blueque_*_q", "~blueque_*_q_*")
    rules = [*of(SCHEDULER), "+hello", "+client|tracking"]
    address = user(*rules, "resetkeys", *OF_VIDEO, *of_all, name="keeper")
    scheduler = programs.scheduler(address, environ=patched_look)
    scheduler.says("making no tasks of schedules")
    due = client.get_queue("video").schedule("fine", 1e9)
    until(lambda: client.get_task(due).status == "pending")

    assert len(scheduler.lines("schedules")) == 1


@pytest.mark.parametrize("program", ["listener", "scheduler"])
def test_a_program_ends_at_its_start_and_names_the_right(programs, user, program):
    programs.url = user("+@all", "-hset")

    start = {
        "listener": lambda: programs.listener("work:work", is_awaited=False),
        "scheduler": programs.scheduler,
    }
    started = start[program]()

    assert started.wait() == 77
    assert len(started.lines("NOPERM")) == 1
    assert len(started.lines(f"this user lacks, as {program}: +hset")) == 1
    assert "report" not in started.log


def test_a_right_that_is_taken_away_is_missed_once_and_its_return_said_once(
    programs, user, cli, client
):
    programs.url = user("+@all")
    listener = programs.listener(
        "work:work", "--beat", "0.1", environ=patched({"system.backoff.LONGEST": 0.2})
    )
    cli.execute_command("ACL", "SETUSER", "modest", "-rpoplpush")
    task_id = client.get_queue("work").enqueue("fine")
    listener.says("Redis refused RPOPLPUSH blueque_pending_tasks_work: NOPERM")
    await_beats(client, "work")
    assert client.get_task(task_id).status == "pending"
    assert len(listener.lines("NOPERM")) == 1
    assert not listener.lines("again")

    cli.execute_command("ACL", "SETUSER", "modest", "+rpoplpush")

    assert outcome(client, task_id).status == "complete"
    assert len(listener.lines("Redis no longer refuses RPOPLPUSH after ")) == 1


@pytest.mark.parametrize("name", ["multi", "exec"])
def test_once_transactions_are_refused_nothing_is_changed_until_they_are_not(user, cli, name):
    queue = Client(user("+@all"), patience=0).get_queue("video")
    queue.enqueue("in")
    cli.execute_command("ACL", "SETUSER", "modest", f"-{name}")
    for _ in range(3):
        with pytest.raises(RedisRefused, match="NOPERM"):
            queue.enqueue("in")
    before = cli.llen("blueque_pending_tasks_video")
    cli.execute_command("ACL", "SETUSER", "modest", f"+{name}")

    queue.enqueue("in")

    assert before <= 2, "what was on its way when the right was taken away"
    assert cli.llen("blueque_pending_tasks_video") == before + 1


# A cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of one node."""
    port_of_the_bus, servers = 10000, []
    while not servers or servers[-1].port + port_of_the_bus > 65535:
        servers.append(Server(tmp_path_factory.mktemp("cluster"), "--cluster-enabled", "yes"))
    server = servers[-1]
    server.start()
    try:
        with redis_py.Redis(port=server.port) as node:
            node.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            until(lambda: node.cluster("info")["cluster_state"] == "ok")
        yield server
    finally:
        server.kill()


CLUSTER = "this is a Redis Cluster, where one transaction cannot reach all keys that Blueque needs (CROSSSLOT"


def test_every_program_refuses_a_cluster_with_a_sentence(cluster: Server, programs):
    programs.url = cluster.url
    started = [programs.scheduler(), programs.listener("work:work", is_awaited=False)]

    result = forked.run(["--redis-url", cluster.url, "enqueue", "work", "{}"], dict(os.environ))

    assert (result.returncode, CLUSTER in result.stderr) == (78, True), result.stderr
    assert "report" not in result.stderr
    for program in started:
        assert program.wait() == 78
        assert len(program.lines(CLUSTER)) == 1, program.log


@pytest.mark.parametrize("kind", ["socket", "redis-py"])
def test_both_kinds_of_connection_know_a_cluster(cluster: Server, kind):
    by_redis_py = {"redis": redis_py.Redis(port=cluster.port)}
    client = Client(patience=0, **({"url": cluster.url} if kind == "socket" else by_redis_py))

    with pytest.raises(RedisRefused, match="this is a Redis Cluster") as refusal:
        client.get_queue("work").enqueue("in")

    assert refusal.value.code == "CROSSSLOT"


class NodeWithoutKeys:
    """Connections to a node of a cluster that has none of the keys."""

    is_proven = True

    def connection(self):
        return self

    def exchange(self, commands):
        moved = RedisRefused("MOVED 3999 127.0.0.1:6381")
        return ["OK" if command == ("MULTI",) else moved for command in commands]

    def close(self): ...


def test_what_a_cluster_refuses_is_not_taken_for_a_right_that_is_missing():
    with pytest.raises(RedisRefused, match="this is a Redis Cluster"):
        lacking(NodeWithoutKeys(), "viewer")


@pytest.mark.parametrize(
    "answer", ["MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381", "CROSSSLOT Keys"]
)
def test_a_cluster_is_a_matter_of_the_configuration(answer):
    failure = explain(RedisRefused(answer), "")

    assert failure.exit_code == 78
    assert "this is a Redis Cluster" in failure.message
