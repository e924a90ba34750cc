"""Recovery: who is dead, by proof and by observation, and what is done for them.

The dead are registrations of machines that never were, and processes of this one. What a
transaction does to Redis is told in test_membership and test_recover; here it is told when a judge
does which.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading

import pytest
import redis as redis_py
from clock import Clock
from running import PATIENCE
from transactions import protocol

from blueque import Client, RedisAway, RedisRefused, Retry
from blueque.model import keys, units
from blueque.model.attempt_ref import AttemptRef
from blueque.model.units import Timing
from blueque.protocol.membership import Heartbeat
from blueque.recovery import judge as recovery
from blueque.recovery.judge import Recovery
from blueque.recovery.observed import LONGEST_PACE, LOOK_AT_STARTED
from blueque.scheduler import Scheduler
from blueque.system import process

FAR = "far_7"
ELSEWHERE = {"pid_start": 5, "boot": "another-boot", "ns": "4026531836"}
LEASE, LOST_AFTER = 0.5, 1.0
SAFE = {"retry": Retry(max=0, interruptions=3).to_text()}
time = Clock()


@pytest.fixture(autouse=True)
def _by_our_clock(monkeypatch):
    monkeypatch.setattr(recovery, "time", time)


@pytest.fixture
def judge(client):
    impatient = client.with_patience(0)
    yield Recovery(impatient.connections)
    impatient.close()


def register(redis, node=FAR, instance="i1", now=None, dead=None, **facts):
    known = {
        "beat_every": 0.1,
        "lease": LEASE,
        "lost_after": LOST_AFTER,
        "pid": 7,
        **ELSEWHERE,
    } | facts
    known = {name: value for name, value in known.items() if value is not None}
    protocol.register(
        redis, "video", node, instance, known, time.time() if now is None else now, dead
    )


def register_legacy(cli, node):
    """Do what 1.0.0 does."""
    cli.sadd("blueque_listeners_video", node)
    cli.zincrby("blueque_queues", 1, "video")


def beat(redis, number, node=FAR, now=None):
    protocol.beat(
        redis, [Heartbeat("video", node, "i1", number)], time.time() if now is None else now
    )


def hold(
    redis,
    cli,
    task="t1",
    status="started",
    node=FAR,
    pid=77,
    token="token",
    options=None,
    identity=ELSEWHERE,
):
    """Give the listener a task, as far as that status."""
    protocol.enqueue(redis, "video", task, "in", time.time(), options)
    assert (
        cli.rpoplpush("blueque_pending_tasks_video", f"blueque_reserved_tasks_video_{node}") == task
    )
    if status == "popped":
        return
    cli.hset(f"blueque_task_{task}", mapping={"status": "reserved", "node": node, "attempt": 1})
    if token is not None:
        cli.hset(f"blueque_task_{task}", "token", token)
    if status == "started":
        protocol.start(redis, AttemptRef("video", task, token, node), pid, time.time(), identity)


def fields(cli, task="t1"):
    return cli.hgetall(f"blueque_task_{task}")


def line(cli):
    """Return the tasks in line, the next one first."""
    return cli.lrange("blueque_pending_tasks_video", 0, -1)[::-1]


def held(cli, node=FAR):
    return cli.lrange(f"blueque_reserved_tasks_video_{node}", 0, -1)


def is_alive(cli, node=FAR):
    return cli.hget(f"blueque_listener_video_{node}", "state") == "alive"


def pace(judge):
    """Return how long the judge waits between two looks at the queue."""
    return judge._of("video").pace


def look_until(judge, is_so, what="it"):
    """Look as often as the judge wants to until it is so; return the orphans that the last look has
    found.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        orphans = judge.step(["video"])
        if is_so():
            return orphans
        assert time.monotonic() < deadline, what
        time.sleep(min(pace(judge) / 2, 0.1))


def look_for(judge, seconds):
    """Look as often as the judge wants to, for so long."""
    end = time.monotonic() + seconds
    look_until(judge, lambda: time.monotonic() >= end)


def ended_process(is_reaped=True):
    child = subprocess.Popen(["sleep", "1000"])
    identity = {"pid": child.pid, **process.identity(child.pid)}
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    if is_reaped:
        child.wait()
    return child, identity


@pytest.fixture
def living():
    child = subprocess.Popen(["sleep", "1000"])
    yield child.pid
    child.kill()
    child.wait()


@pytest.fixture
def on_the_machine(monkeypatch):
    """See every process of the machine, wherever the tests run: in a container 1.0.0 is not judged."""
    monkeypatch.setattr(process, "sees_all_pids", lambda: True)


# Dead by observation


def test_a_beat_that_stands_still_for_a_lease_is_the_end_then_and_not_before(redis, cli, judge):
    register(redis)
    hold(redis, cli, status="started")
    began = time.monotonic()
    look_until(judge, lambda: not is_alive(cli), "the end of the lease")
    assert time.monotonic() - began >= LEASE
    assert cli.hget(f"blueque_listener_video_{FAR}", "state") == "dead"
    assert cli.smembers("blueque_listeners_video") == set()
    assert cli.zscore("blueque_queues", "video") == 0


@pytest.mark.parametrize("lease", [None, "soon"])
def test_a_lease_that_a_registration_does_not_tell_is_a_minute(redis, cli, judge, lease):
    register(redis, lease=lease)
    register(redis, "control_1", lease=0.4)
    look_until(judge, lambda: not is_alive(cli, "control_1"))
    assert 1 < pace(judge) <= LONGEST_PACE and is_alive(cli)


def test_a_node_that_was_one_of_1_0_0_is_judged_by_its_registration_once_it_has_one(
    redis, cli, judge
):
    register_legacy(cli, FAR)
    judge.step(["video"])
    register(redis)
    look_until(judge, lambda: not is_alive(cli))


def test_who_beats_in_the_last_moment_is_not_dead(redis, other, cli, judge, overtaken):
    register(redis)
    acted = []
    overtaken(lambda: acted.append(beat(other, 1)))
    look_until(judge, lambda: acted, "the fence")
    began = time.monotonic()
    assert is_alive(cli)
    look_until(judge, lambda: not is_alive(cli))
    assert time.monotonic() - began >= LEASE


def test_who_beats_after_the_look_and_before_the_fence_is_not_dead(
    redis, other, cli, judge, monkeypatch
):
    register(redis)
    read, beats = judge._inspector.registration, []

    def read_late(queue, node):
        if not beats:
            beats.append(beat(other, 1))
        return read(queue, node)

    monkeypatch.setattr(judge._inspector, "registration", read_late)
    look_until(judge, lambda: beats, "the last look at the registration")
    assert is_alive(cli)


def test_a_look_at_a_key_of_a_wrong_type_has_failed_and_the_lease_starts_anew(redis, cli, judge):
    queues, members = ["video", "audio"], keys.listeners("video")
    register(redis)
    began = time.monotonic()
    while time.monotonic() - began < LEASE / 2:
        judge.step(queues)
        time.sleep(LEASE / 20)
    cli.rename(members, "kept")
    cli.set(members, "of another program")
    judge.step(queues)
    cli.rename("kept", members)

    began = time.monotonic()
    while is_alive(cli):
        judge.step(queues)
        time.sleep(LEASE / 20)
    assert time.monotonic() - began >= LEASE

    cli.set(members, "of another program")
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        judge.step(["video"])


def test_a_judge_does_not_judge_its_own_listener(redis, cli, judge):
    register(redis)
    register(redis, "control_1", lease=2 * LEASE)
    judge.own("video", FAR)
    look_until(judge, lambda: not is_alive(cli, "control_1"))
    assert is_alive(cli)


@pytest.mark.parametrize("hours", [-24, 24])
def test_the_clock_of_the_listener_is_compared_with_nothing_but_itself(redis, cli, judge, hours):
    register(redis, now=time.time() + hours * 3600)
    began = time.monotonic()
    look_until(judge, lambda: not is_alive(cli))
    assert time.monotonic() - began >= LEASE


def test_a_listener_whose_clock_is_set_back_lives_on_and_dies_like_any_other(redis, cli, judge):
    register(redis)
    end, number = time.monotonic() + 2 * LEASE, 0
    while time.monotonic() < end:
        judge.step(["video"])
        number += 1
        beat(redis, number, now=time.time() - number * 3600)
        time.sleep(pace(judge) / 2)
    assert is_alive(cli)
    began = time.monotonic()
    look_until(judge, lambda: not is_alive(cli))
    assert time.monotonic() - began >= LEASE


# Who could not look has seen nothing stand still. Each returns a moment up to which that was so.


def be_away(judge, server, cli):
    time.sleep(LEASE / 2)  # suspended, for longer than may be between two looks
    return time.monotonic()


def stand_still(judge, server, cli):
    os.kill(server.pid, signal.SIGSTOP)  # the answer comes, and late
    moments = []

    def awake():
        moments.append(time.monotonic())
        os.kill(server.pid, signal.SIGCONT)

    awakening = threading.Timer(LEASE / 2, awake)
    awakening.start()
    judge.step(["video"])
    awakening.join()
    return moments[0]


def restart(judge, server, cli):
    server.kill()
    with pytest.raises(RedisAway):
        judge.step(["video"])
    server.start()
    return time.monotonic()


def refuse_to_write(judge, server, cli):
    cli.config_set("maxmemory", 1)
    with pytest.raises(RedisRefused, match="OOM"):
        judge.step(["video"])
    cli.config_set("maxmemory", 0)
    return time.monotonic()


@pytest.mark.parametrize("disturb", [be_away, stand_still, restart, refuse_to_write])
def test_who_could_not_look_or_beat_begins_to_observe_anew(own_server, disturb):
    with redis_py.Redis.from_url(own_server.url, decode_responses=True) as cli:
        client = Client(own_server.url, patience=2.0)
        judge = Recovery(client.with_patience(0).connections)
        register(client.connections)
        look_for(judge, LEASE * 0.6)
        assert is_alive(cli)
        began = disturb(judge, own_server, cli)
        look_until(judge, lambda: not is_alive(cli))
        assert time.monotonic() - began >= LEASE
        client.close()


# Never by time


@pytest.mark.parametrize("kind", ["library", "1.0.0"])
def test_who_has_nobody_to_beat_for_it_is_never_dead_by_time(redis, cli, judge, kind):
    if kind == "library":
        register(redis, beat_every=0, lease=LEASE, lost_after=2 * LEASE)
    else:
        register_legacy(cli, FAR)
    hold(redis, cli, "reserved", "reserved")
    hold(redis, cli, "started", "started")
    register(redis, "control_1", lease=3 * LEASE)
    look_until(judge, lambda: not is_alive(cli, "control_1"))
    assert FAR in cli.smembers("blueque_listeners_video")
    assert held(cli) == ["started", "reserved"] and line(cli) == []


# Dead by proof


@pytest.mark.parametrize("is_reaped", [True, False])
@pytest.mark.parametrize("beat_every", [10, 0])
def test_a_listener_whose_process_has_ended_is_dead_at_once(
    redis, cli, judge, is_reaped, beat_every
):
    child, identity = ended_process(is_reaped)
    register(redis, beat_every=beat_every, lease=60, **identity)
    hold(redis, cli, status="started")
    judge.step(["video"])
    assert cli.hget(f"blueque_listener_video_{FAR}", "state") == "dead"
    child.wait()


def test_a_listener_whose_pid_is_another_processes_by_now_is_dead_at_once(redis, cli, judge):
    own = process.identity(os.getpid())
    register(redis, "own_1", pid=os.getpid(), lease=60, **own)
    register(
        redis, "former_1", pid=os.getpid(), lease=60, **(own | {"pid_start": own["pid_start"] - 1})
    )
    judge.step(["video"])
    assert (is_alive(cli, "own_1"), is_alive(cli, "former_1")) == (True, False)


@pytest.mark.parametrize(
    "other", [{"boot": "another-boot"}, {"ns": "1"}, {"boot": None}, {"ns": None}, {"pid": None}]
)
def test_a_pid_of_another_boot_or_namespace_proves_nothing(redis, cli, judge, other):
    _, identity = ended_process()
    register(redis, lease=60, **(identity | other))
    judge.step(["video"])
    assert is_alive(cli)


def test_one_of_1_0_0_whose_process_on_this_host_has_ended_is_struck_off(
    redis, cli, judge, living, on_the_machine
):
    child, _ = ended_process()
    gone, alive = f"{process.host_name()}_{child.pid}", f"{process.host_name()}_{living}"
    for node in (gone, alive):
        register_legacy(cli, node)
        hold(redis, cli, f"of {node}", "reserved", node, token=None)
    judge.step(["video"])
    assert cli.smembers("blueque_listeners_video") == {alive}
    assert cli.zscore("blueque_queues", "video") == 1
    assert line(cli) == [f"of {gone}"] and held(cli, alive) == [f"of {alive}"]


def test_who_does_not_see_all_processes_of_the_machine_judges_none_of_1_0_0(
    redis, cli, judge, living, monkeypatch
):
    """The host name of one in a container may be that of the machine, too, and a pid there means
    another process.
    """
    monkeypatch.setattr(process, "sees_all_pids", lambda: False)
    ended = ended_process()[0].pid
    node = f"{process.host_name()}_{ended}"
    claimant = f"{process.host_name()}_{ended_process()[0].pid}"
    register_legacy(cli, node)
    hold(redis, cli, "reserved", "reserved", node, token=None)
    hold(redis, cli, "started", "started", node, token=None, pid=ended, identity=None)
    register(redis)
    hold(redis, cli, "claimed", "reserved")
    claimed(cli, "claimed", claimant)
    look_until(judge, lambda: not is_alive(cli))
    judge.step(["video"])
    assert cli.smembers("blueque_listeners_video") == {node} and held(cli, node) == [
        "started",
        "reserved",
    ]
    assert fields(cli, "started")["status"] == "started"
    assert held(cli) == ["claimed"] and line(cli) == []


# What they held


def kill(redis, node=FAR):
    """Declare a listener dead, as another judge has."""
    assert protocol.fence(redis, "video", node, "i1", "0", 9.25)


def test_work_that_had_not_started_is_the_next_in_line_in_its_order_at_no_cost(
    redis, cli, judge, state
):
    register(redis)
    for number, status in enumerate(["reserved", "popped", "reserved"]):
        hold(redis, cli, f"t{number}", status)
    protocol.enqueue(redis, "video", "later", "in", time.time())
    kill(redis)
    assert judge.step(["video"]) == []
    assert line(cli) == ["t0", "t1", "t2", "later"]
    for task in ("t0", "t1", "t2"):
        assert fields(cli, task).keys() - {"attempt", "events"} == {
            "status",
            "queue",
            "parameters",
            "created",
            "queued",
            "updated",
        }
        assert fields(cli, task)["status"] == "pending"
    assert cli.zrange("blueque_wake_video", 0, -1) == ["0"]
    # And nothing is left of the dead one.
    assert {key for key in state() if not key.startswith("blueque_task")} == {
        "blueque_pending_tasks_video",
        "blueque_queues",
        "blueque_wake_video",
    }


def test_a_started_task_elsewhere_is_lost_after_lost_after_and_not_before(redis, cli, judge):
    register(redis, now=1700000000.0)
    hold(redis, cli)
    began = time.monotonic()
    assert look_until(judge, lambda: not is_alive(cli)) == [], (
        "there is nobody here who could adopt it"
    )
    assert fields(cli)["status"] == "started"
    look_until(judge, lambda: fields(cli)["status"] != "started")
    assert time.monotonic() - began >= LOST_AFTER
    task = fields(cli)
    assert task["error"] == (
        "lost: listener far_7, last seen at 2023-11-14 22:13:20 UTC, is dead, and how far process 77 got there "
        "is not known"
    )
    assert (task["status"], task["error_type"], task["lost_node"]) == ("failed", "lost", FAR)
    assert (float(task["last_seen"]), task["interruptions"]) == (1700000000.0, "1")
    assert task["token"] == "token"
    assert cli.lrange("blueque_failed_tasks_video", 0, -1) == ["t1"]
    assert not cli.exists("blueque_started_tasks_video") and not cli.exists(
        f"blueque_listener_video_{FAR}"
    )


@pytest.fixture
def lost(redis, cli, judge):
    """Let a listener die with one task, wait until that is given up, and return its fields."""

    def lost(options=None, **facts):
        register(redis, lost_after=LEASE, **facts)
        hold(redis, cli, options=options)
        protocol.enqueue(redis, "video", "later", "in", time.time())
        look_until(judge, lambda: fields(cli)["status"] != "started")
        return fields(cli)

    return lost


@pytest.mark.parametrize("status", ["reserved", "started"])
def test_who_waits_in_another_queue_for_the_lock_of_a_dead_listener_is_woken(
    redis, cli, judge, status
):
    register(redis)
    hold(redis, cli, status=status, options=SAFE)
    cli.hset("blueque_task_t1", "lock", "x")
    cli.sadd(keys.lock("x"), "t1")
    cli.sadd(keys.waiting("x"), "0,lock:x=1_audio")
    kill(redis)

    look_until(judge, lambda: fields(cli)["status"] == "pending")

    assert cli.exists(keys.lock("x"), keys.wake("audio")) == 1
    assert cli.zrange(keys.wake("audio"), 0, -1) == ["0"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (None, "pending"),
        ({"retry": "null"}, "failed"),
        ({"retry": '{"max":3,"interruptions":0}'}, "failed"),
    ],
)
def test_the_policy_of_the_dead_listener_is_for_tasks_that_have_none_of_their_own(
    lost, options, status
):
    assert lost(options, retry=SAFE["retry"])["status"] == status


# Tasks whose process can be looked at


def test_a_task_whose_process_lives_here_is_an_orphan_and_never_given_up(redis, cli, judge, living):
    register(redis, lost_after=LEASE)
    hold(redis, cli, "t1", pid=living, identity=process.identity(living))
    hold(redis, cli, "control")
    orphans = look_until(judge, lambda: fields(cli, "control")["status"] == "failed")
    assert [(task.id, task.pid, task.token) for task in orphans] == [("t1", living, "token")]
    assert [task.id for task in judge.step(["video"])] == ["t1"]
    assert fields(cli)["status"] == "started" and held(cli) == ["t1"]


def test_what_one_of_1_0_0_ran_is_lost_as_soon_as_both_are_gone_and_not_while_its_process_lives(
    redis, cli, judge, living, on_the_machine
):
    dead, ended = ended_process()[0].pid, ended_process()[0].pid
    node = f"{process.host_name()}_{dead}"
    register_legacy(cli, node)
    hold(redis, cli, "gone", node=node, token=None, pid=ended, identity=None)
    hold(redis, cli, "running", node=node, token=None, pid=living, identity=None)
    assert judge.step(["video"]) == []
    assert fields(cli, "gone")["error_type"] == "lost"
    assert fields(cli, "running")["status"] == "started"
    assert held(cli, node) == ["running"]


def test_what_one_of_1_0_0_ran_elsewhere_is_never_given_up(redis, cli, judge, monkeypatch):
    monkeypatch.setattr(units, "LOST_AFTER", 0.2)
    hold(redis, cli, token=None, identity=None)
    register(redis, "control_1")
    look_until(judge, lambda: not is_alive(cli, "control_1"))
    assert fields(cli)["status"] == "started" and held(cli) == ["t1"]


# Beside 1.0.0


def claimed(cli, task, by):
    cli.hset(f"blueque_task_{task}", "reclaimed_node", by)


def test_a_reserved_task_that_1_0_0_has_claimed_is_left_to_its_claimant_unless_that_is_dead_by_proof(
    redis, cli, judge, living, on_the_machine
):
    child, _ = ended_process()
    host = process.host_name()
    register(redis)
    claimants = {
        "living": f"{host}_{living}",
        "dead": f"{host}_{child.pid}",
        "elsewhere": "other_5",
        "odd": "nonsense",
    }
    for task, by in claimants.items():
        hold(redis, cli, task, "reserved")
        claimed(cli, task, by)
    kill(redis)
    judge.step(["video"])
    assert line(cli) == ["dead"] and "reclaimed_node" not in fields(cli, "dead")
    assert held(cli) == ["odd", "elsewhere", "living"]
    assert cli.hget(f"blueque_listener_video_{FAR}", "state") == "dead", (
        "somebody must see to the others later"
    )


def test_a_started_task_that_1_0_0_has_claimed_is_treated_like_any_other(redis, cli, judge, living):
    register(redis)
    hold(redis, cli, "here", pid=living, identity=process.identity(living))
    hold(redis, cli, "elsewhere")
    for task in ("here", "elsewhere"):
        claimed(cli, task, f"{process.host_name()}_{living}")
    orphans = look_until(judge, lambda: fields(cli, "elsewhere")["status"] == "failed")
    assert [task.id for task in orphans] == ["here"]


def test_the_newest_reserved_entry_of_one_that_1_0_0_has_struck_off_waits_for_a_claim(
    redis, cli, judge, monkeypatch
):
    register(redis)
    for task in ("first", "second"):
        hold(redis, cli, task, "reserved")
    cli.srem("blueque_listeners_video", FAR)
    kill(redis)
    look_for(judge, LEASE)
    assert line(cli) == ["first"] and held(cli) == ["second"]
    monkeypatch.setattr(units, "LOST_AFTER", LEASE)
    look_until(judge, lambda: line(cli) == ["second", "first"], "the end of that time")
    assert not cli.exists(f"blueque_listener_video_{FAR}")


def test_the_newest_entry_is_not_waited_for_when_1_0_0_cannot_be_about_to_run_it(redis, cli, judge):
    register(redis)
    hold(redis, cli, "first", "reserved")
    hold(redis, cli, "second", "popped")
    cli.srem("blueque_listeners_video", FAR)
    kill(redis)
    judge.step(["video"])
    assert line(cli) == ["first", "second"]


# Whom nobody remembers


def test_a_listener_that_comes_up_under_the_name_of_a_dead_one_leaves_what_that_held_to_judges(
    client, redis, cli, judge
):
    """As after a reboot, or in a container: host name and pid are the same, and it is another one."""
    register(redis, process.node_id())
    hold(redis, cli, node=process.node_id(), options=SAFE)
    look_until(judge, lambda: not is_alive(cli, process.node_id()))
    listener = client.get_listener("video")
    listener.register(Timing())
    judge.own("video", listener.node)
    assert listener.node != process.node_id() and listener.node.startswith(process.host_name())
    assert listener.held() == [] and is_alive(cli, listener.node)
    look_until(judge, lambda: line(cli) == ["t1"], "the next attempt")
    assert (fields(cli)["interruptions"], held(cli, process.node_id())) == ("1", [])
    task = listener.take()
    assert (task.id, task.attempt, task.node) == ("t1", 2, listener.node)


def test_one_that_takes_leave_properly_leaves_nothing_to_do(redis, cli, judge, state):
    register(redis)
    judge.step(["video"])
    protocol.deregister(redis, "video", FAR, "i1")
    before = state()
    assert judge.step(["video"]) == []
    assert state() == before
    assert pace(judge) == LOOK_AT_STARTED, "there is nobody to be judged"


# Judges


def test_two_judges_at_once_do_everything_once(url, redis, cli):
    register(redis)
    for number in range(30):
        hold(redis, cli, f"r{number}", "reserved")
        hold(redis, cli, f"s{number}", "started", options=SAFE)
    clients = [Client(url, patience=0) for _ in range(2)]
    barrier = threading.Barrier(2)

    def be_judge(client):
        judge = Recovery(client.connections)
        barrier.wait()
        with contextlib.suppress(AssertionError):
            look_until(judge, lambda: len(line(cli)) >= 60)

    threads = [threading.Thread(target=be_judge, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line(cli)) == sorted([f"{kind}{number}" for kind in "rs" for number in range(30)])
    assert {fields(cli, f"s{number}")["interruptions"] for number in range(30)} == {"1"}
    assert not any("interruptions" in fields(cli, f"r{number}") for number in range(30))
    assert cli.zscore("blueque_queues", "video") == 0
    for client in clients:
        client.close()


def serve(scheduler, is_so):
    """Do what the program does until it is so."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        seconds = scheduler.step()
        news = scheduler._lookout.fileno()
        process.wait_readable([] if news is None else [news], seconds)


def test_the_scheduler_looks_again_soon_when_a_look_has_failed(client, redis, cli, monkeypatch):
    register(redis)
    scheduler = Scheduler(client)
    with monkeypatch.context() as patch:
        patch.setattr(
            "blueque.connection.tracked.Tracked._open",
            lambda *_: (_ for _ in ()).throw(RedisAway("for a moment")),
        )
        with pytest.raises(RedisAway):
            scheduler.step()
    serve(scheduler, lambda: not is_alive(cli))
    scheduler.close()


def test_ten_thousand_listeners_are_looked_at_in_few_round_trips(proxy, cli):
    pipeline = cli.pipeline(transaction=False)
    for number in range(10_000):
        known = {
            "instance": "i",
            "state": "alive",
            "beat": 0,
            "beat_at": 5,
            "beat_every": 10,
            "lease": 60,
            **ELSEWHERE,
        }
        pipeline.hset(f"blueque_listener_video_far_{number}", mapping=known)
        pipeline.zadd("blueque_nodes_video", {f"far_{number}": 5})
        pipeline.sadd("blueque_listeners_video", f"far_{number}")
    pipeline.execute()
    client = Client(proxy.url, patience=0)
    judge = Recovery(client.connections)
    judge.step(["video"])
    assert proxy.writes <= 40  # each registration once, many at a time
    writes, before = proxy.writes, cli.info("stats")["total_commands_processed"]
    judge.step(["video"])
    assert proxy.writes - writes == 1
    assert cli.info("stats")["total_commands_processed"] - before == 3 + 1
    client.close()


@pytest.mark.parametrize(
    "key", ["blueque_listener_video_far_6", "blueque_reserved_tasks_video_far_6"]
)
def test_a_key_of_one_listener_that_is_not_what_it_should_be_does_not_keep_the_others_from_being_judged(
    redis, cli, judge, key
):
    register(redis, "far_6", lost_after=0.1)  # the one that is looked at first
    register(redis)
    hold(redis, cli, "started")
    judge.step(["video"])
    cli.delete(key)
    cli.set(key, "odd")
    look_until(
        judge, lambda: fields(cli, "started")["status"] == "failed", "the judgement of the other"
    )
