"""The real blueque 1.0.0 and ours on one Redis, each in processes of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import legacy
import pytest
from legacy import Legacy, ledger, release
from running import ROOT, state_of, until
from transactions import protocol

from blueque import Client, NotOwner, Retry, WrongState
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol import permissions
from blueque.protocol.ends import End
from blueque.system.process import fork, host_name, node_id, wait_for

WORK = legacy.WORK

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
FORMS = {  # of what 1.0.0 writes
    "status": "pending|scheduled",
    "queue": "video",
    "parameters": "a.mov",
    "created": r"\d{10}\.\d{1,7}",
    "updated": r"\d{10}\.\d{1,7}",
    "eta": r"4000000000\.25",
}

EVERY_STATE = [
    word
    for state in ("scheduled", "pending", "reserved", "started", "complete", "failed")
    for word in ("--state", state)
]

RUN = "ForkingRunner(client, argv[0], getattr(work, argv[1])).run()"
PROMOTE = "queue = client.get_queue(argv[0])\nwhile True:\n    queue.enqueue_due_tasks()\n    time.sleep(0.001)"
ENQUEUE = "say([client.get_queue(argv[0]).enqueue(each) for each in argv[1]])"
DELETE = """
try:
    client.get_queue(argv[0]).delete_task(client.get_task(argv[1]))
except ValueError as error:
    say(str(error))
"""
READ = """
for each in argv:
    task = client.get_task(each)
    say({name: getattr(task, name) for name in (
        "id", "status", "queue", "parameters", "result", "error", "node", "pid", "created", "updated")})
"""


def registered(cli, number):
    until(lambda: cli.scard("blueque_listeners_video") == number, what=f"{number} listeners")


def finished(cli, number):
    until(
        lambda: cli.llen("blueque_complete_tasks_video") >= number, what=f"{number} complete tasks"
    )


def is_quiet(*programs):
    return not any(re.search("Traceback|Error", program.log) for program in programs)


def reserve_and_die(url):
    """Let a listener of ours reserve a task in a process of its own, which SIGKILL then ends;
    return its node.
    """
    read, write = os.pipe()

    def body():
        listener = Client(url, patience=2).get_listener("video")
        listener.listen()
        os.write(write, listener.node.encode())
        signal.pause()
        return 0

    pid = fork(body)
    os.close(write)
    node = os.read(read, 1000).decode()
    os.close(read)
    os.kill(pid, signal.SIGKILL)
    assert wait_for(pid) == -signal.SIGKILL
    return node


def snapshot(cli):
    """Return the type of every key, with the random parts of its name replaced."""
    return {re.sub(UUID, "ID", key): cli.type(key) for key in cli.keys("*")}


@pytest.mark.parametrize("call", ["enqueue(*argv)", "schedule(*argv)"])
def test_a_new_task_of_ours_has_every_key_and_field_of_1_0_0_in_its_form(legacy, client, cli, call):
    argv = ["a.mov"] if "enqueue" in call else ["a.mov", 4000000000.25]
    (its_id,) = legacy.run(f"say(client.get_queue('video').{call})", *argv)
    its, its_keys = cli.hgetall(f"blueque_task_{its_id}"), snapshot(cli)
    cli.flushall()
    our_id = getattr(client.get_queue("video"), call.partition("(")[0])(*argv)
    ours, our_keys = cli.hgetall(f"blueque_task_{our_id}"), snapshot(cli)

    assert re.fullmatch(UUID, its_id) and re.fullmatch(UUID, our_id)
    assert its_keys.items() <= our_keys.items()
    assert {name: ours.get(name) for name in its if name not in ("created", "updated")} == {
        name: its[name] for name in its if name not in ("created", "updated")
    }
    for fields in (its, ours):
        assert {
            name
            for name, value in fields.items()
            if name in FORMS and re.fullmatch(FORMS[name], value)
        } == set(its)
        assert fields["created"] == fields["updated"]
    assert set(ours) == {*its, "producer"}


def test_our_listeners_run_what_its_producer_enqueues(legacy, programs, client, cli, url):
    (ids,) = legacy.run(ENQUEUE, "video", ["text", '{"a": 1}', 17, 1.5])
    ours = programs.listener("work:show", queue="video", slots=2)
    finished(cli, 4)

    tasks = [client.get_task(each) for each in ids]
    assert [task.result for task in tasks] == ["'text'", "'{\"a\": 1}'", "'17'", "'1.5'"]
    assert [(task.status, task.attempt, task.error) for task in tasks] == [
        ("complete", 1, None)
    ] * 4
    assert sorted(line.task for line in ledger(programs)) == sorted(ids)
    assert set(cli.zrange("blueque_tasks_video", 0, -1)) == set(ids)
    assert ours.stop() == 0 and is_quiet(ours)


def test_its_runner_runs_what_our_producer_enqueues(legacy, programs, client, queue, cli):
    ids = [queue.enqueue("text"), queue.enqueue({"a": [1, None, "é"]})]
    its = legacy.start(RUN, "video", "show")
    finished(cli, 2)

    tasks = [client.get_task(each) for each in ids]
    assert [task.result for task in tasks] == ["'text'", ascii('{"a":[1,null,"é"]}')]
    assert [(task.status, task.attempt, task.token, task.error) for task in tasks] == [
        ("complete", None, None, None)
    ] * 2
    assert its.is_running and is_quiet(its)


def test_its_runner_runs_what_enqueue_many_puts_in_line(legacy, programs, client, queue, cli):
    queue.enqueue_many(["text", {"a": [1, None, "é"]}], batch=1)
    queue.enqueue_many(["keyed", "keyed"], keys=["a", "a"])
    queue.schedule_many(["later"], time.time() + 0.01)
    ids = cli.zrange("blueque_tasks_video", 0, -1)
    until(lambda: time.time() > client.get_task(ids[-1]).eta, what="it is due")
    legacy.run("client.get_queue('video').enqueue_due_tasks()")
    its = legacy.start(RUN, "video", "show")
    finished(cli, 4)

    assert [client.get_task(each).result for each in ids] == [
        "'text'",
        ascii('{"a":[1,null,"é"]}'),
        "'keyed'",
        "'later'",
    ]
    assert sorted(line.task for line in ledger(programs)) == sorted(ids)
    assert queue.enqueue("keyed", key="a").is_new is False
    assert its.is_running and is_quiet(its)


def test_its_runner_runs_a_task_of_ours_that_has_a_policy_and_limits(legacy, client, queue, cli):
    options = {
        "retry": Retry(on=[OSError]),
        "time_limit": "2h",
        "memory_limit": "8GiB",
        "grace": 1,
        "lead": 0.5,
    }
    ids = [queue.enqueue("text", **options), queue.schedule("text", time.time() + 0.01, **options)]
    until(lambda: time.time() > client.get_task(ids[1]).eta, what="it is due")
    legacy.run("client.get_queue('video').enqueue_due_tasks()")
    its = legacy.start(RUN, "video", "show")
    finished(cli, 2)

    tasks = [client.get_task(each) for each in ids]
    assert [(task.result, task.retry) for task in tasks] == [("'text'", options["retry"])] * 2
    (seen, _) = legacy.run(READ, *ids)
    assert (seen["status"], seen["parameters"], seen["error"]) == ("complete", "text", None)
    assert its.is_running and is_quiet(its)


def test_both_kinds_of_listener_share_two_hundred_tasks_and_each_runs_once(
    legacy, programs, client, queue, cli, url
):
    its = legacy.start(RUN, "video", "hold")
    ours = programs.listener("work:hold", queue="video", slots=2)
    registered(cli, 3)
    (ids,) = legacy.run(ENQUEUE, "video", ["its"] * 100)
    ids += [queue.enqueue("ours") for _ in range(100)]
    until(lambda: len(ledger(programs)) == 3, what="each listener has a task")
    release(programs)
    finished(cli, 200)

    lines = ledger(programs)
    assert len(lines) == 200 and {line.task for line in lines} == set(ids)
    assert {line.runner for line in lines} == {"ours", "1.0.0"}
    assert [client.get_task(each).status for each in ids] == ["complete"] * 200
    assert sorted(cli.lrange("blueque_complete_tasks_video", 0, -1)) == sorted(ids)
    assert [key for key in cli.keys("*") if re.search("pending|reserved|started|failed", key)] == []
    assert ours.stop() == 0 and its.is_running and is_quiet(its, ours)


def test_its_scheduler_and_ours_promote_each_of_a_hundred_tasks_once(
    legacy, programs, client, queue, cli, url
):
    its, ours = legacy.start(PROMOTE, "video"), programs.scheduler()
    schedule = "say([client.get_queue('video').schedule('its', time.time() + 0.5 + n / 50) for n in range(50)])"
    (ids,) = legacy.run(schedule)
    ids += [queue.schedule("ours", time.time() + 0.2 + number / 50) for number in range(50)]
    until(lambda: cli.llen("blueque_pending_tasks_video") >= 100, what="all are in line")

    assert not cli.exists("blueque_scheduled_tasks_video")
    assert sorted(cli.lrange("blueque_pending_tasks_video", 0, -1)) == sorted(ids)
    listener = programs.listener("work:record", queue="video", slots=2)
    finished(cli, 100)
    assert sorted(line.task for line in ledger(programs)) == sorted(ids)
    assert its.is_running and ours.stop() == 0 and listener.stop() == 0
    assert is_quiet(its, ours, listener)


def test_what_it_schedules_waits_for_its_time_and_then_runs(legacy, programs, client, cli, url):
    scheduler = programs.scheduler()
    listener = programs.listener("work:record", queue="video", slots=2)
    registered(cli, 2)
    near, far = legacy.run(
        "for eta in (time.time() + 0.5, 4e9):\n    say(client.get_queue('video').schedule('in', eta))"
    )
    finished(cli, 1)

    task = client.get_task(near)
    assert task.eta <= ledger(programs)[0].at <= task.eta + 2
    assert (client.get_task(far).status, client.get_task(far).eta) == ("scheduled", 4e9)
    assert cli.zrange("blueque_scheduled_tasks_video", 0, -1) == [far]
    assert is_quiet(scheduler, listener)


def test_its_enqueue_due_tasks_promotes_ours_in_the_order_of_their_times(
    legacy, client, queue, cli
):
    now = time.time()
    last, first, far = (queue.schedule("in", now + seconds) for seconds in (0.6, 0.5, 1000))
    until(lambda: time.time() > client.get_task(last).eta, what="both are due")

    legacy.run("client.get_queue('video').enqueue_due_tasks()")

    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == [last, first]
    assert [client.get_task(each).status for each in (first, last, far)] == [
        "pending",
        "pending",
        "scheduled",
    ]


@pytest.mark.parametrize("eta", [float("inf"), 4e12])
def test_a_task_that_it_schedules_beyond_the_calendar_can_be_seen(
    legacy, programs, client, cli, url, eta
):
    (task_id,) = legacy.run(
        "say(client.get_queue('video').schedule('in', float(argv[0])))", str(eta)
    )
    scheduler = programs.scheduler()
    soon = client.get_queue("video").schedule("soon", time.time() + 0.1)
    until(lambda: client.get_task(soon).status == "pending", what="the scheduler works on")

    assert (client.get_task(task_id).status, client.get_task(task_id).eta) == ("scheduled", eta)
    assert client.get_inspector().overview() and client.get_inspector().find(task_id) == [task_id]
    for arguments in (
        ["status"],
        ["ls", "--state", "scheduled"],
        ["show", task_id],
        ["show", task_id, "--json"],
    ):
        command_line(url, *arguments)
    assert is_quiet(scheduler)


def command_line(url, *arguments):
    """Run `blueque` and return what it printed; it must not fail."""
    command = [sys.executable, "-m", "blueque.cli.main", *arguments, "--redis-url", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), (arguments, done.stderr)
    return done.stdout


def test_its_delete_task_removes_our_finished_task_and_the_hint_that_stays_does_no_harm(
    legacy, programs, client, queue, cli, url
):
    deleted, kept = queue.enqueue("in"), queue.enqueue("in")
    listener = programs.listener("work:record", queue="video", slots=2)
    finished(cli, 2)

    legacy.run("client.get_queue('video').delete_task(client.get_task(argv[0]))", deleted)

    assert client.get_task(deleted).status is None
    assert cli.lrange("blueque_complete_tasks_video", 0, -1) == [kept]
    assert cli.zscore("blueque_tasks_video", deleted) is not None
    inspector = client.get_inspector()
    assert [task.id for task in inspector.listing(["video"], ["complete"], 10).tasks] == [kept]
    assert inspector.find(deleted[:8]) == [] and inspector.overview()
    assert kept[:8] in command_line(url, "ls", "--state", "complete")
    assert deleted[:8] not in command_line(url, "ls", *EVERY_STATE)
    command_line(url, "status")
    assert is_quiet(listener)


def test_our_delete_task_removes_its_finished_task(legacy, client, queue, state):
    (ids,) = legacy.run(ENQUEUE, "video", ["one", "two"])
    legacy.run("""
listener = client.get_listener("video")
for number in range(2):
    processor = client.get_processor(listener.listen())
    processor.start(os.getpid())
    processor.complete("done") if number else processor.fail("broken")
""")
    tasks = [client.get_task(each) for each in ids]
    assert [(task.status, task.result, task.error) for task in tasks] == [
        ("failed", None, "broken"),
        ("complete", "done", None),
    ]

    for task in tasks:
        queue.delete_task(task)

    assert set(state()) == {"blueque_queues", "blueque_listeners_video"}


def test_it_reads_our_tasks_in_every_status(legacy, programs, client, queue, cli, redis, url):
    node = node_id()
    protocol.register(redis, "video", node, "i1", {}, time.time())
    ids = {
        "complete": queue.enqueue({"a": 1}),
        "failed": queue.enqueue("text"),
        "started": queue.enqueue("text"),
    }
    for number, status in enumerate([*ids, "reserved"]):
        if status == "reserved":
            ids["reserved"] = queue.enqueue([])
        popped, *_ = protocol.pop(redis, "video", node, "i1")
        fields = protocol.reserve(
            redis, AttemptRef("video", popped, f"token{number}", node), "i1", time.time()
        )
        assert popped == ids[status] and fields
        if status != "reserved":
            protocol.start(
                redis,
                AttemptRef("video", popped, f"token{number}", node),
                4711,
                time.time(),
                {"boot": "b", "ns": "n"},
            )
    protocol.end(
        redis,
        AttemptRef("video", ids["complete"], "token0", node),
        End.complete("1", {"result_encoding": "json"}),
        time.time(),
    )
    protocol.end(
        redis,
        AttemptRef("video", ids["failed"], "token1", node),
        End.fail("é", {"exit_code": 1, "error_type": "exit"}),
        time.time(),
    )
    ids |= {"scheduled": queue.schedule(None, 4e9), "pending": queue.enqueue(17)}

    seen = {task["status"]: task for task in legacy.run(READ, *ids.values())}

    assert {status: task["id"] for status, task in seen.items()} == ids
    assert {status: task["pid"] for status, task in seen.items()} == {
        "scheduled": None,
        "pending": None,
        "reserved": None,
        "started": 4711,
        "complete": 4711,
        "failed": 4711,
    }
    assert [seen[status]["parameters"] for status in ids] == [
        '{"a":1}',
        "text",
        "text",
        "[]",
        "null",
        "17",
    ]
    assert (seen["complete"]["result"], seen["failed"]["error"]) == ("1", "é")
    assert seen["started"]["node"] == node
    assert all(
        isinstance(task[name], float) for task in seen.values() for name in ("created", "updated")
    )
    assert {task["queue"] for task in seen.values()} == {"video"}


def test_it_reads_what_our_programs_leave_of_tasks_with_text_that_is_none(
    legacy, programs, client, queue, cli, url
):
    refused = queue.enqueue("in")
    listener = programs.listener("work:refuse", queue="video", slots=2)
    until(lambda: client.get_task(refused).status == "failed", what="the handler has raised")
    program = programs.listener("--exec", "sh", "-c", r"printf '\377\n'; cat", queue="images")
    printed = client.get_queue("images").enqueue("")
    until(
        lambda: client.get_task(printed).status in ("complete", "failed"),
        what="the program has ended",
    )

    first, second = legacy.run(READ, refused, printed)
    assert first["status"] == "failed" and "Äpfel and \\udcff" in first["error"]
    assert second["status"] in ("complete", "failed")
    assert is_quiet(program) and "Traceback" not in listener.log


def test_its_runner_starts_beside_our_living_listeners_and_leaves_them_alone(
    legacy, programs, client, queue, cli, url
):
    ours = programs.listener("work:hold", queue="video", slots=2)
    registered(cli, 2)
    queue.enqueue("held")
    until(lambda: len(ledger(programs)) == 1, what="one of ours is busy")
    before = cli.smembers("blueque_listeners_video")

    (claimed,) = legacy.run("say(client.get_listener('video').claim_orphan() is None)")
    its = legacy.start(RUN, "video", "hold")
    registered(cli, 3)  # it has buried the 1.0.0 listener before, and nobody else

    assert claimed is True
    assert before <= cli.smembers("blueque_listeners_video")
    assert not any(cli.hget(key, "reclaimed_node") for key in cli.keys("blueque_task_*"))
    release(programs)
    finished(cli, 1)
    assert its.is_running and ours.stop() == 0 and is_quiet(its, ours)


def test_a_listener_of_ours_that_it_strikes_off_works_on(legacy, programs, client, queue, cli, url):
    ours = programs.listener("work:record", queue="video")
    registered(cli, 1)
    (node,) = cli.smembers("blueque_listeners_video")

    legacy.run("client.get_listener('video')._queue.remove_listener(argv[0])", node)
    task_id = queue.enqueue("in")
    finished(cli, 1)

    assert client.get_task(task_id).node == node
    assert ours.stop() == 0 and is_quiet(ours)


def test_the_beat_puts_back_a_listener_of_ours_that_it_has_struck_off(legacy, client, queue, cli):
    listener = client.get_listener("video")
    listener.register(None)
    legacy.run("client.get_listener('video')._queue.remove_listener(argv[0])", listener.node)
    assert not cli.sismember("blueque_listeners_video", listener.node)
    score = cli.zscore("blueque_queues", "video")

    listener.beat()

    assert cli.sismember("blueque_listeners_video", listener.node)
    assert cli.zscore("blueque_queues", "video") == score + 1
    queue.enqueue("in")
    assert listener.take() is not None


def test_its_claim_orphan_as_another_user_takes_a_living_listener_of_ours_for_dead_and_both_survive(
    legacy, programs, client, queue, cli, url
):
    # kill(pid, 0) of another user's process is refused, and 1.0.0 reads that as: there is none.
    ours = programs.listener("work:record", queue="video")
    registered(cli, 1)
    (node,) = cli.smembers("blueque_listeners_video")
    pretend = """
import blueque.listener
def refuse(pid, number):
    raise PermissionError(1, "Operation not permitted")
os.kill = refuse
say(client.get_listener("video").claim_orphan() is None)
"""

    assert legacy.run(pretend) == [True]

    assert not cli.sismember("blueque_listeners_video", node)
    queue.enqueue("in")
    finished(cli, 1)
    assert ours.stop() == 0 and is_quiet(ours)


def test_its_runner_runs_what_a_killed_listener_of_ours_had_reserved(
    legacy, programs, client, queue, cli, url
):
    task_id = queue.enqueue("in")
    node = reserve_and_die(url)
    assert client.get_task(task_id).status == "reserved"

    its = legacy.start(RUN, "video", "record")
    finished(cli, 1)

    task = client.get_task(task_id)
    assert (task.status, task.result, task.node, task.attempt) == ("complete", "recorded", node, 1)
    assert [line.runner for line in ledger(programs)] == ["1.0.0"]
    assert not cli.exists(f"blueque_reserved_tasks_video_{node}") and not cli.exists(
        "blueque_started_tasks_video"
    )
    another = queue.enqueue("in")
    finished(cli, 2)
    assert client.get_task(another).status == "complete"
    assert its.is_running and is_quiet(its)


def test_its_runner_waits_for_what_a_killed_listener_of_ours_had_started_and_ours_report_it(
    legacy, programs, client, queue, cli
):
    ours = programs.listener("work:hold", queue="video")
    task_id = queue.enqueue("in")
    until(lambda: ledger(programs), what="it runs")
    (slot,) = ours.slots()
    # else it would give the task another listener
    assert ours.stop(signal.SIGKILL) == -signal.SIGKILL
    os.kill(slot, signal.SIGKILL)
    until(lambda: state_of(slot) == "", what="its listener is gone, as 1.0.0 sees it")
    its = legacy.start(RUN, "video", "record")
    until(
        lambda: cli.hget(f"blueque_task_{task_id}", "reclaimed_node"), what="1.0.0 has claimed it"
    )
    ours = programs.listener("work:hold", queue="video")
    until(
        lambda: client.get_task(task_id).node == f"{host_name()}_{ours.slots()[0]}",
        what="ours has adopted it",
    )

    release(programs)
    finished(cli, 1)
    others = [queue.enqueue("in") for _ in range(20)]
    finished(cli, 21)

    task = client.get_task(task_id)
    assert (task.status, task.result, task.attempt) == ("complete", "released", 1)
    assert [line.runner for line in ledger(programs) if line.task == task_id] == ["ours"]
    assert sorted(line.task for line in ledger(programs)) == sorted([task_id, *others])
    assert ours.stop() == 0  # it would be faster
    until(
        lambda: any(line.runner == "1.0.0" for line in take_more(programs, queue)),
        what="1.0.0 works on",
    )
    assert its.is_running and is_quiet(its)


def take_more(programs, queue):
    """Put another task in line and return which have been run by now."""
    queue.enqueue("in")
    return ledger(programs)


def test_a_task_that_it_took_over_is_refused_to_the_one_that_was_not_dead(
    legacy, programs, client, queue, cli
):
    listener = client.get_listener("video")
    queue.enqueue("in")
    task = listener.listen()
    (status,) = legacy.run(
        """
dead = argv[0]
listener = client.get_listener("video")
listener._queue.remove_listener(dead)
task = client.get_task(listener._queue.reclaim_task(dead, listener._name))
processor = client.get_processor(task)
processor.start(os.getpid())
processor.complete("its")
say(client.get_task(task.id).status)
""",
        listener.node,
    )
    assert status == "complete"

    with pytest.raises(NotOwner):
        client.get_processor(task).start(os.getpid())

    assert (client.get_task(task.id).result, cli.llen("blueque_complete_tasks_video")) == ("its", 1)


def test_the_stump_that_it_makes_of_a_deleted_task_is_dropped_by_our_listeners(
    legacy, programs, client, queue, cli, url
):
    listener = programs.listener("work:record", queue="video")
    registered(cli, 1)
    task_id = queue.schedule("in", time.time() + 0.05)
    legacy.run(
        """
client.get_queue("video")._redis_queue.delete_task(argv[0], "complete")
time.sleep(0.1)
client.get_queue("video").enqueue_due_tasks()
""",
        task_id,
    )
    assert set(cli.hgetall(f"blueque_task_{task_id}")) == {"status", "updated"}

    queue.enqueue("next")
    finished(cli, 1)

    assert task_id not in [line.task for line in ledger(programs)]
    assert set(cli.hgetall(f"blueque_task_{task_id}")) == {"status", "updated"}
    assert [key for key in cli.keys("*") if re.search("pending|reserved|started|failed", key)] == []
    command_line(url, "status")
    command_line(url, "ls", *EVERY_STATE)
    command_line(url, "show", task_id)
    assert listener.stop() == 0 and is_quiet(listener)


def test_parameters_that_are_no_text_reach_our_listeners(legacy, programs, client, queue, cli, url):
    (task_id,) = legacy.run("say(client.get_queue('video').enqueue(b'\\xff\\x00\\xfe'))")
    listener = programs.listener("work:show", queue="video")
    finished(cli, 1)
    another = queue.enqueue("next")
    finished(cli, 2)

    assert client.get_task(task_id).result == r"'\udcff\x00\udcfe'"
    assert client.get_task(another).result == "'next'"
    command_line(url, "ls", *EVERY_STATE)
    command_line(url, "show", task_id)
    assert listener.stop() == 0 and is_quiet(listener)


def test_an_id_that_is_twice_in_line_runs_once(legacy, programs, client, cli, url):
    (ids,) = legacy.run("""
queue = client.get_queue("video")._redis_queue
ids = []
for number in range(40):
    ids.append(queue.enqueue("in"))
    queue._redis.lpush("blueque_pending_tasks_video", ids[-1])
for each in ids:
    queue._redis.lpush("blueque_pending_tasks_video", each)
say(ids)
""")
    assert cli.llen("blueque_pending_tasks_video") == 120
    listener = programs.listener("work:record", queue="video", slots=2)
    until(lambda: not cli.exists("blueque_pending_tasks_video"), what="the line is empty")
    finished(cli, 40)

    assert listener.stop() == 0
    assert sorted(line.task for line in ledger(programs)) == sorted(ids)
    assert sorted(cli.lrange("blueque_complete_tasks_video", 0, -1)) == sorted(ids)
    assert [key for key in cli.keys("*") if re.search("pending|reserved|started|failed", key)] == []
    assert is_quiet(listener)


def test_what_its_listener_completed_twice_can_be_deleted_and_listed(
    legacy, client, queue, cli, url
):
    task_id = queue.enqueue("in")
    legacy.run("""
processor = client.get_processor(client.get_listener("video").listen())
processor.start(os.getpid())
processor.complete("done")
processor.complete("done again")
processor.fail("after all")
""")
    assert cli.lrange("blueque_complete_tasks_video", 0, -1) == [task_id, task_id]

    command_line(url, "status")
    command_line(url, "ls", *EVERY_STATE)
    queue.delete_task(client.get_task(task_id))

    assert client.get_task(task_id).status is None
    command_line(url, "status")
    assert task_id[:8] not in command_line(url, "ls", *EVERY_STATE)


def test_queue_names_that_only_it_allows_stop_no_program_of_ours(legacy, programs, client, url):
    scheduler = programs.scheduler()
    legacy.run(
        """
for name in argv:
    client.get_queue(name).enqueue("in")
    client.get_queue(name).schedule("in", time.time() + 0.1)
""",
        "",
        "q" * 201,
        "a\0b",
        "ä ö\n'\"{}",
    )
    allowed = client.get_queue("ä ö\n'\"{}").schedule("in", time.time() + 0.2)
    until(
        lambda: client.get_task(allowed).status == "pending" or not scheduler.is_running,
        what="the others are promoted",
    )

    assert scheduler.is_running and is_quiet(scheduler)
    assert len(client.get_inspector().queues()) == 4 and client.get_inspector().overview()
    command_line(url, "status")
    command_line(url, "ls", *EVERY_STATE)


def test_the_python_variables_of_the_caller_do_not_reach_it(legacy, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONHOME", "/nowhere")

    version, where = legacy.run(
        "from importlib.metadata import version\nsay(version('blueque'))\nsay(blueque.__file__)"
    )

    assert version == "1.0.0"
    assert Path(where).is_relative_to(ROOT / ".venv-1.0.0")


def test_it_shows_a_cancelled_task_of_ours_and_refuses_to_delete_it(legacy, queue, state):
    task_id = queue.enqueue("a.mov")
    queue.cancel(task_id)
    before = state()

    (fields,) = legacy.run(READ, task_id)
    said = legacy.run(DELETE, "video", task_id)

    assert fields["status"] == "cancelled"
    assert said == ["Cannot delete task with status cancelled"]
    assert state() == before


def test_its_scheduler_puts_a_task_that_waits_for_its_next_attempt_in_line(legacy, queue, redis):
    task_id = queue.enqueue("a.mov")
    protocol.register(redis, "video", "host_1", "i1", {}, now=1.5)
    protocol.pop(redis, "video", "host_1", "i1")
    protocol.reserve(redis, AttemptRef("video", task_id, "token", "host_1"), "i1", now=6.5)
    protocol.end(redis, AttemptRef("video", task_id, "token", "host_1"), End.retry(99.5), 8.5)

    legacy.run("client.get_queue('video').enqueue_due_tasks()")

    assert protocol.pop(redis, "video", "host_1", "i1")[:3] == (task_id, 0, None)
    assert (
        protocol.reserve(redis, AttemptRef("video", task_id, "next", "host_1"), "i1", now=100.5)[
            "attempt"
        ]
        == "2"
    )


def test_a_task_that_its_listener_has_cannot_be_cancelled(legacy, queue, state):
    task_id = queue.enqueue("a.mov")
    assert legacy.run("say(client.get_listener('video').listen().id)") == [task_id]
    before = state()

    with pytest.raises(WrongState, match=r"a listener of 1\.0\.0"):
        queue.cancel(task_id)

    assert state() == before


def test_a_user_with_its_role_is_enough_for_it(programs, client, cli, url, rules_of):
    rules = permissions.rules(["legacy"], rules_of)
    cli.execute_command("ACL", "SETUSER", "old", "reset", "on", ">pw", *rules)
    cli.acl_log_reset()
    legacy = Legacy(url.replace("//", "//old:pw@"), programs)
    (ids,) = legacy.run(ENQUEUE, "video", ["in", "in"])
    legacy.run("client.get_queue('video').schedule('in', 1.0)")
    started = [legacy.start(PROMOTE, "video"), legacy.start(RUN, "video", "show")]
    finished(cli, 3)
    failed = client.get_queue("audio").enqueue("in")
    legacy.run("""
processor = client.get_processor(client.get_listener("audio").listen())
processor.start(os.getpid())
processor.fail("broken")
""")
    assert client.get_task(failed).status == "failed"

    legacy.run(DELETE, "video", ids[0])

    assert [each["status"] for each in legacy.run(READ, *ids)] == [None, "complete"]
    assert is_quiet(*started)
    # redis-py goes on without it.
    assert {entry["object"] for entry in cli.acl_log()} <= {"client|setinfo", "client"}
    for program in started:
        program.stop()
    cli.acl_deluser("old")
