"""blueque move, queue pause, queue resume and queue set, and why: what they do, what they say, and
how they end.
"""

from __future__ import annotations

import json
import os
import re
import time

import pytest
from test_cli import NODE, enqueue, ref, start
from transactions import protocol

from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.lines import write_needs
from blueque.model.queue_settings import pausing
from blueque.protocol.ends import End
from blueque.system import process


@pytest.fixture(autouse=True)
def listener(redis):
    """A registered listener of the queue video."""
    protocol.register(
        redis, "video", NODE, "i1", {"beat_every": 10, "resources": "gpu=1"}, time.time()
    )


def wait(redis, task, priority=0, queue="video", **resources):
    lock = resources.pop("lock", None)
    needs = write_needs(resources, lock) if resources or lock else None
    options = ({"priority": priority} if priority else {}) | ({"needs": needs} if needs else {})
    protocol.enqueue(redis, queue, task, "1", time.time(), {**options})


def take(redis, task, line, queue="video", instance="i1"):
    protocol.pop(redis, queue, NODE, instance, line)
    protocol.reserve(redis, AttemptRef(queue, task, f"secret-{task}", NODE), instance, time.time())
    protocol.start(redis, AttemptRef(queue, task, f"secret-{task}", NODE), 4711, time.time() - 7260)


def serve(redis, queue, node=NODE, instance="i2", **facts):
    protocol.register(
        redis, queue, node, instance, {"beat_every": 10, "resources": "gpu=1", **facts}, time.time()
    )


# priority, first, move


def test_a_waiting_task_gets_another_priority_negative_ones_too(run, redis, client, cli):
    enqueue(redis, "pending-1")
    protocol.schedule(redis, "video", "scheduled-1", "1", 9e9, time.time())

    result = run("move", "pending-1", "scheduled-1", "--priority", "-5")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "pending-1  pending, priority -5\nscheduled-1  scheduled, priority -5\n"
    assert cli.lrange(keys.line("video", "-5"), 0, -1) == ["pending-1"]
    assert client.get_task("scheduled-1").fields["priority"] == "-5"


@pytest.mark.parametrize(
    "verb", [["--priority", "5"], ["--first"], ["--to", "other"], ["--now"], ["--unblock"]]
)
def test_a_task_that_does_not_wait_is_refused_with_code_5_and_stays_as_it_is(
    run, redis, state, verb
):
    start(redis, "started-1")
    before = state()

    result = run("move", "started-1", *verb)

    assert (result.returncode, result.stdout) == (5, "")
    assert "started-1" in result.stderr
    assert state() == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["move", "pending-1", "--priority", "101"], 2),
        (["move", "pending-1", "--priority", "high"], 2),
        (["move", "nobody", "--priority", "1"], 3),
        (["move", "pending-1", "--to", ""], 2),
        (["move", "pending-1", "--first", "--from", "other"], 2),
        (["move", "none", "--first"], 3),
        (["queue", "pause", "nowhere*"], 3),
        (["queue", "set", "video", "max-running=few"], 2),
        (["queue", "set", "nowhere*", "max-running=1"], 3),
        (["queue", "set", "nowhere", "max-running="], 3),
        (["queue", "resume", "nowhere"], 3),
        (["queue", "pause", ""], 2),
        (["requeue", "--queue", "nowhere*"], 3),
        (["delete", "-q", "nowhere*", "--state", "pending,scheduled,blocked", "--yes"], 3),
        (["queue", "forget", "nowhere*", "--yes"], 3),
        (["logs", "-q", "nowhere*"], 3),
        (["why", "nobody"], 3),
    ],
)
def test_what_makes_no_sense_changes_nothing_and_ends_with_its_code(
    run, redis, state, arguments, code
):
    enqueue(redis, "pending-1")
    before = state()

    result = run(*arguments)

    assert (result.returncode, result.stdout) == (code, "")
    assert state() == before


def test_tasks_are_put_first_in_the_order_in_which_they_are_named(run, redis, cli):
    for number in range(4):
        enqueue(redis, f"task-{number}")

    run("move", "--first", "task-3", "task-2")

    assert cli.lrange(keys.pending("video"), 0, -1)[::-1] == [
        "task-3",
        "task-2",
        "task-0",
        "task-1",
    ]


def test_a_task_moves_to_another_queue_and_one_that_nobody_serves_is_remarked_on(
    run, redis, client
):
    enqueue(redis, "pending-1")

    result = run("move", "pending-1", "--to", "audio", "--json")

    assert result.returncode == 0 and "no listener serves it" in result.stderr
    said = json.loads(result.stdout)
    assert (said["kind"], said["items"][0]["status"]) == ("move", "pending")
    assert client.get_task("pending-1").queue == "audio"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["move", "pending-1"], "--unblock: give one of them"),
        (["move", "pending-1", "--now", "--first"], "--unblock: give one of them"),
        (["move", "--first"], "ID... | - is missing"),
        (
            ["move", "pending-1", "--priority", "1.5"],
            "'1.5' is not a whole number from -100 to 100",
        ),
        (["move", "pending-1", "--now", "--from", "a"], "--from goes with --unblock"),
        (["queue", "set", "video", "max-running=-1"], "max_running: "),
    ],
)
def test_what_is_missing_or_wrong_is_named(run, redis, state, arguments, said):
    enqueue(redis, "pending-1")
    before = state()

    result = run(*arguments)

    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr
    assert state() == before


def test_a_move_that_is_refused_tells_of_no_new_queue(run, redis):
    start(redis, "started-1")

    result = run("move", "started-1", "--to", "other")

    assert result.returncode == 5 and "new queue" not in result.stderr


# pause, resume, limit


def test_a_queue_is_paused_and_goes_on_and_who_and_why_is_told(run, redis, client):
    enqueue(redis, "pending-1")

    paused = run("queue", "pause", "video", "--as", "ada", "--reason", "deploy")
    again = run("queue", "pause", "video", "--as", "bob")
    other = run("queue", "pause", "video", "--as", "eve", "--reason", "the disk is full")
    told = client.get_inspector().queue_seen("video").settings.pause
    resumed, once_more = run("queue", "resume", "video"), run("queue", "resume", "video")

    assert [one.stdout for one in (paused, again, other, resumed, once_more)] == [
        "video  paused\n",
        "video  paused already, by ada\n",
        "video  paused\n",
        "video  resumed\n",
        "video  was not paused\n",
    ]
    assert (told.by, told.reason) == ("eve", "the disk is full")
    assert client.get_inspector().queue_seen("video").settings.pause is None


def test_a_queue_can_be_paused_and_limited_before_it_has_a_task(run, redis, client):
    paused, limited = (
        run("queue", "pause", "later", "--as", "ada"),
        run("queue", "set", "small", "max-running=1"),
    )

    assert (paused.returncode, paused.stdout) == (0, "later  paused\n")
    assert (limited.returncode, limited.stdout) == (0, "small  set: max-running=1\n")
    assert paused.stderr == "queue later has no task and no listener yet\n"
    assert "queue small has no" in limited.stderr
    rows = {line.split()[0]: line for line in run("queue", "ls").stdout.splitlines()}
    assert rows["later"].endswith("paused by ada") and rows["small"].split()[-2:] == ["1", "open"]
    assert "by ada" in run("status").stdout

    protocol.register(redis, "later", NODE, "i1", {"beat_every": 10}, time.time())
    enqueue(redis, "t1", "later")
    assert protocol.pop(redis, "later", NODE, "i1").refusal == "paused"
    assert run("queue", "resume", "later").stdout == "later  resumed\n"
    assert run("queue", "forget", "small").returncode == 0


def test_what_is_said_of_queues_is_said_of_all_that_a_pattern_matches(run, redis, client):
    for name in ("render.2k", "render.4k", "video"):
        enqueue(redis, f"task-{name}", name)

    assert (
        run("queue", "pause", "render.*", "video").stdout
        == "render.2k  paused\nrender.4k  paused\nvideo  paused\n"
    )
    assert run("queue", "resume", "render.*").stdout == "render.2k  resumed\nrender.4k  resumed\n"
    limited = run("queue", "set", "render.*", "max-running=2", "--json")
    assert [
        (item["queue"], item["settings"]["max_running"])
        for item in json.loads(limited.stdout)["items"]
    ] == [("render.2k", 2), ("render.4k", 2)]
    assert client.get_inspector().queue_seen("video").room.limit is None


def test_listeners_of_1_0_0_are_said_to_know_of_no_pause(run, redis, cli):
    enqueue(redis, "pending-1")
    cli.sadd(keys.listeners("video"), "old_1")

    result = run("queue", "pause", "video", "--json")

    assert result.stderr == "1 listener of 1.0.0 on video ignores this.\n"
    assert json.loads(result.stdout)["items"][0]["paused"] is True


# why


def test_the_next_task_with_an_idle_listener_waits_for_nothing(why, redis):
    enqueue(redis, "pending-1")

    codes, text = why("pending-1")

    assert codes == ["next"]
    assert re.match(r"pending-1 in video has been pending for \d+\.\d s\.", text)


def test_a_task_that_should_have_been_taken_long_ago_is_not_promised_for_now(why, redis):
    protocol.enqueue(redis, "video", "pending-1", "1", time.time() - 60)

    codes, text = why("pending-1")

    assert codes == ["next"]
    assert "may be busy with other queues" in text


def test_a_paused_queue_is_said_with_who_and_why_and_how_to_end_it(why, redis):
    enqueue(redis, "pending-1")
    protocol.set_settings(
        redis, "video", pausing("ada", "deploy", time.time() - 7230), time.time() - 7230, "ada"
    )

    codes, text = why("pending-1")

    assert codes == ["paused"]
    assert "Queue video has been paused for 2 h by ada: deploy.\n" in text
    assert "blueque queue resume video\n" in text


def test_a_silent_listener_is_no_listener_and_said_when_it_was_seen(why, redis, cli):
    enqueue(redis, "pending-1")
    cli.zadd(keys.nodes("video"), {NODE: time.time() - 3661})

    codes, text = why("pending-1")

    assert codes == ["no_listener"]
    assert "is silent and was last seen 1 h 1 m ago" in text


def test_a_listener_whose_process_is_gone_from_this_host_takes_no_task(why, redis):
    pid = process.fork(lambda: 0)
    process.wait_for(pid)
    facts = {"beat_every": 10, "lease": 60, **process.identity(os.getpid()), "pid_start": 1}
    node = f"{process.host_name()}_{pid}"
    protocol.register(redis, "audio", node, "i9", facts, time.time())
    enqueue(redis, "pending-1", "audio")

    codes, text = why("pending-1")

    assert codes == ["no_listener"]
    assert f"No listener serves audio. {node} is dead and was last seen " in " ".join(text.split())


def test_busy_listeners_and_the_tasks_before_it_are_counted(why, redis):
    start(redis, "started-1")
    for number in range(3):
        enqueue(redis, f"pending-{number}")
    wait(redis, "urgent-1", 5)

    codes, text = why("pending-2")

    assert codes == ["busy", "behind", "outranked"]
    assert (
        f"The only listener of video has a task: started-1 on {NODE} for 2 h 1 m; it can start when that ends."
        in text
    )
    assert "It is number 3 of 3 with its priority and needs." in text
    assert "1 task of higher priority has its turn first" in text


def test_the_task_that_holds_the_lock_is_named(why, redis):
    wait(redis, "holder", lock="customer 17")
    take(redis, "holder", "0,lock:customer%2017=1")
    wait(redis, "waiter", lock="customer 17")

    codes, text = why("waiter")

    assert codes == ["lock", "busy"]
    assert (
        f"Lock customer 17 is held: holder on {NODE} for 2 h 1 m; it starts when that ends.\n"
        in text
    )


def test_a_task_that_waits_for_the_one_before_of_its_schedule_says_so(why, redis, cli):
    wait(redis, "holder", lock="schedule:nightly")
    take(redis, "holder", "0,lock:schedule%3Anightly=1")
    wait(redis, "waiter", lock="schedule:nightly")
    cli.hset("blueque_task_waiter", mapping={"schedule": "nightly", "planned": 1795354755})

    codes, text = why("waiter")

    assert codes[0] == "lock"
    told = " ".join(text.split())
    assert "Tasks of schedule nightly run one at a time, and another one runs: holder on" in told
    assert "it starts when that ends. blueque schedule show nightly" in told


def test_a_full_queue_is_said_with_who_runs(why, redis):
    protocol.set_settings(redis, "video", {"max_running": "1"}, 1.0)
    enqueue(redis, "first-1")
    take(redis, "first-1", "0")
    enqueue(redis, "pending-1")

    codes, text = why("pending-1")

    assert codes == ["limit", "busy"]
    assert f"Queue video may run 1 task at a time, and 1 runs: first-1 on {NODE}" in text


def test_a_need_that_no_listener_can_meet_is_said_with_the_most_there_is(why, redis):
    wait(redis, "heavy", gpu=2, memory=8 << 30)

    codes, text = why("heavy")

    assert codes == ["never_fits"]
    assert (
        "It needs gpu=2, memory=8GiB, and no listener of video has that much: the most is gpu=1."
        in text
    )
    assert "a host that has it, with --resource gpu=2 --resource memory=8GiB, or cancel" in text
    assert "blueque cancel heavy\n" in text and "blueque-listener" not in text


def put_in_line(redis, task, queue, **options):
    protocol.enqueue(redis, queue, task, "in", time.time(), options)


def serve_until(redis, seconds, number=1, **facts):
    facts = {"beat_every": 10, "ends_at": time.time() + seconds, **facts}
    node = f"{NODE.rpartition('_')[0]}_{number}"
    protocol.register(redis, "short", node, f"i{number}", facts, time.time())


def test_a_listener_that_stops_its_tasks_too_soon_is_named(why, redis):
    serve_until(redis, 1810)
    put_in_line(redis, "long", "short", time_limit=7200)
    codes, text = why("long")
    assert codes == ["no_time"]
    assert re.search(
        r"It may run for 2 h, and the only listener of short stops its tasks in \d+ m( \d+ s)? "
        r"\(--max-runtime\)\. A listener with more time takes it\. "
        r"blueque-listener short --module MODULE$",
        " ".join(text.split()),
    )
    serve_until(redis, 3660, 2)
    both = " ".join(why("long")[1].split())
    assert "and both listeners of short stop their tasks in 1 h" in both
    assert " at most (--max-runtime)." in both
    serve_until(redis, 7300, 3)
    assert why("long")[0] == ["next"]


def test_the_limit_of_such_a_listener_counts_for_tasks_without_their_own(why, redis):
    serve_until(redis, 1810, time_limit=7200)
    put_in_line(redis, "plain", "short")
    put_in_line(redis, "brief", "short", time_limit=60)
    assert (why("plain")[0], why("brief")[0]) == (["no_time"], ["behind"])
    serve_until(redis, 1810, 2, time_limit="no number")
    assert why("plain")[0] == ["next"]


def test_of_listeners_with_enough_time_it_is_said_that_they_are_busy(why, redis):
    serve_until(redis, 1810)
    serve_until(redis, 99999, 2)
    put_in_line(redis, "holder", "short")
    protocol.pop(redis, "short", f"{NODE.rpartition('_')[0]}_2", "i2")
    ref = AttemptRef("short", "holder", "token", f"{NODE.rpartition('_')[0]}_2")
    protocol.reserve(redis, ref, "i2", time.time())
    put_in_line(redis, "long", "short", time_limit=7200)
    assert why("long")[0] == ["busy"]


def test_a_need_that_another_task_uses_up_is_said_with_that_task(why, redis):
    protocol.register(
        redis,
        "video",
        NODE.rpartition("_")[0] + "_2",
        "i2",
        {"beat_every": 10, "resources": "gpu=1"},
        time.time(),
    )
    wait(redis, "holder", gpu=1)
    take(redis, "holder", "0,gpu=1")
    wait(redis, "waiter", gpu=1)

    codes, text = why("waiter")

    assert codes == ["no_room"]
    assert "It needs gpu=1, but too little is free: held by holder on" in text
    assert "it starts when that ends.\n" in text


def test_a_need_that_a_task_of_another_queue_on_the_node_uses_up_is_said_with_task_and_queue(
    why, redis
):
    serve(redis, "audio", instance="i3")
    serve(redis, "video", NODE.rpartition("_")[0] + "_2")  # another slot of the node is idle
    wait(redis, "holder", queue="audio", gpu=1)
    take(redis, "holder", "0,gpu=1", "audio", "i3")
    wait(redis, "waiter", gpu=1)

    codes, text = why("waiter")

    assert codes == ["no_room"]
    assert f"held by holder of queue audio on {NODE} for 2 h 1 m; it starts when that ends." in text


def test_a_task_of_another_queue_on_another_spool_of_the_host_keeps_nothing(why, redis):
    serve(redis, "audio", NODE.rpartition("_")[0] + "_2", "i3", spool="/elsewhere")
    wait(redis, "holder", queue="audio", gpu=1)
    protocol.pop(redis, "audio", NODE.rpartition("_")[0] + "_2", "i3", "0,gpu=1")
    protocol.reserve(
        redis, AttemptRef("audio", "holder", "s", NODE.rpartition("_")[0] + "_2"), "i3", time.time()
    )
    wait(redis, "waiter", gpu=1)

    assert why("waiter")[0] == ["next"]


def test_only_those_that_can_run_are_said_to_have_their_turn_before_it(why, redis):
    wait(redis, "holder", lock="a")
    take(redis, "holder", "0,lock:a=1")
    serve(redis, "video", NODE.rpartition("_")[0] + "_2")
    wait(redis, "locked-1", lock="a")
    wait(redis, "free-1", lock="b")
    enqueue(redis, "pending-1")

    codes, text = why("pending-1")

    assert codes == ["beside", "next"]
    assert "1 task of the same priority may have its turn before it: the oldest first." in text


@pytest.mark.parametrize(
    ("queue", "resources", "command"),
    [
        ("run=4", {}, "blueque-listener run=4=1 --module MODULE"),
        ("--run", {}, "blueque-listener --module MODULE -- --run"),
        ("-q=4", {"gpu": 1}, "blueque-listener --resource gpu=1 --module MODULE -- -q=4=1"),
        (
            "audio",
            {"gpu": 1, "memory": 8 << 30},
            "blueque-listener audio --resource gpu=1 --resource memory=8GiB --module MODULE",
        ),
    ],
)
def test_the_next_step_names_queue_resources_and_a_place_for_a_handler(
    why, redis, queue, resources, command
):
    wait(redis, "pending-1", queue=queue, **resources)

    assert f"{command}\n" in why("pending-1")[1]


@pytest.mark.parametrize(
    ("file", "variables"),
    [
        ('[queues.audio]\nhandler = "tasks:mix"', {}),
        ('[listener]\nexec = "./mix.sh"', {}),
        ("", {"BLUEQUE_HANDLER": "tasks:mix"}),
        ("", {"BLUEQUE_EXEC": "./mix.sh"}),
    ],
    ids=["queue", "listener", "run", "exec"],
)
def test_the_next_step_leaves_out_a_handler_that_the_configuration_names(
    run, redis, tmp_path, file, variables
):
    (tmp_path / "blueque.toml").write_text(file)
    enqueue(redis, "pending-1", "audio")
    environ = variables | {"BLUEQUE_CONFIG": str(tmp_path / "blueque.toml")}

    assert "\n  blueque-listener audio\n" in run("why", "pending-1", **environ).stdout


def test_the_next_step_has_a_place_for_a_handler_that_only_another_queue_has(run, redis, tmp_path):
    (tmp_path / "blueque.toml").write_text('[queues.video]\nhandler = "tasks:cut"')
    enqueue(redis, "pending-1", "audio")

    said = run("why", "pending-1", BLUEQUE_CONFIG=str(tmp_path / "blueque.toml")).stdout

    assert "\n  blueque-listener audio --module MODULE\n" in said


def test_the_next_step_for_a_paused_queue_with_a_dash_can_be_run(why, redis, run):
    enqueue(redis, "pending-1", "--run")
    protocol.set_settings(redis, "--run", pausing("ada", None, time.time()), time.time(), "ada")

    assert "blueque queue resume -- --run\n" in why("pending-1")[1]
    assert run("queue", "resume", "--", "--run").stdout == "--run  resumed\n"


def test_a_running_task_of_a_draining_listener_is_not_said_to_be_abandoned(why, redis):
    start(redis, "started-1")
    protocol.order(redis, "video", NODE, "drain", "ada")

    codes, text = why("started-1")

    assert codes == ["running", "draining"]
    assert "it finishes this task and exits" in text


def test_a_task_whose_listeners_are_all_paused_is_told_which_host_to_resume(why, redis):
    enqueue(redis, "pending-1", "video")
    protocol.order(redis, "video", NODE, "pause", "ada")

    codes, text = why("pending-1")

    host = NODE.rpartition("_")[0]
    assert "no_listener" in codes
    assert f"The listeners of video on {host} are paused." in text
    assert f"blueque host resume {host}\n" in text


@pytest.mark.parametrize("how", ["drain", "pause", None])
def test_a_listener_whose_process_is_gone_from_this_host_is_said_to_be_gone_before_its_lease_is_over(
    why, redis, how
):
    pid = process.fork(lambda: 0)
    process.wait_for(pid)
    node = f"{process.host_name()}_{pid}"
    protocol.register(
        redis,
        "video",
        node,
        "i9",
        {"beat_every": 10, "lease": 60, **process.identity(os.getpid()), "pid_start": 1},
        time.time(),
    )
    start(redis, "started-1", node=node, instance="i9")
    if how is not None:
        protocol.order(redis, "video", node, how, "a signal")

    codes, text = why("started-1")

    assert codes == ["running", "listener"]
    assert f"The process of its listener {node} is gone from this host, last seen " in text
    assert "adopts the task, the task counts as lost.\n" in text
    assert "ends this task" not in text


def test_a_listener_that_should_have_beaten_again_is_said_to_be_silent_though_it_drains(
    why, redis, cli
):
    start(redis, "started-1")
    protocol.order(redis, "video", NODE, "drain", "ada")
    cli.zadd("blueque_nodes_video", {NODE: time.time() - 30})

    codes, text = why("started-1")

    assert codes == ["running", "listener"]
    assert f"Its listener {NODE} is silent, last seen 30 s ago" in text
    assert "ends this task" not in text


def test_why_names_the_spool_with_which_a_listener_adopts_the_task(run, redis, cli):
    start(redis, "started-1")
    cli.hset(f"blueque_listener_video_{NODE}", "spool", "/srv/my spool")
    cli.zadd("blueque_nodes_video", {NODE: time.time() - 30})

    shown = run("why", "started-1").stdout

    assert (
        "blueque-listener --spool '/srv/my spool' video --resource gpu=1 --module MODULE\n" in shown
    )


def test_a_need_that_is_free_is_no_reason_though_others_have_some_of_it(why, redis):
    protocol.register(
        redis,
        "video",
        NODE.rpartition("_")[0] + "_2",
        "i2",
        {"beat_every": 10, "resources": "gpu=2"},
        time.time(),
    )
    wait(redis, "holder", gpu=1)
    take(redis, "holder", "0,gpu=1")
    wait(redis, "waiter", gpu=1)

    assert why("waiter")[0] == ["next"]


def test_a_listener_of_1_0_0_alone_cannot_take_what_has_a_priority(why, redis, cli):
    cli.sadd(keys.listeners("audio"), "old_1")
    wait(redis, "urgent-1", 5, "audio")

    assert why("urgent-1")[0] == ["no_listener"]


def test_what_does_not_wait_in_line_says_what_it_does_instead(why, redis, cli):
    start(redis, "running-1")
    protocol.schedule(redis, "video", "later-1", "1", time.time() + 7230, time.time())
    protocol.schedule(redis, "video", "late-1", "1", time.time() - 300, time.time())
    enqueue(redis, "cancelled-1")
    protocol.cancel(redis, "video", "cancelled-1", "ada", "wrong", time.time())
    enqueue(redis, "popped-1")
    cli.lmove(keys.pending("video"), keys.reserved("video", NODE), "RIGHT", "LEFT")

    found = {
        task: why(task) for task in ("running-1", "later-1", "late-1", "cancelled-1", "popped-1")
    }

    assert {task: codes for task, (codes, _) in found.items()} == {
        "running-1": ["running"],
        "later-1": ["scheduled"],
        "late-1": ["overdue"],
        "cancelled-1": ["ended"],
        "popped-1": ["popped"],
    }
    assert ", in 2 h: a scheduler or a listener" in found["later-1"][1]
    assert "blueque-scheduler" in found["late-1"][1]
    assert "It was cancelled by ada: wrong." in found["cancelled-1"][1]


def test_a_task_that_asked_to_run_again_later_is_not_said_to_have_failed(why, redis):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())
    start(redis, "late-1")
    redis.read(
        (
            "HSET",
            keys.task("late-1"),
            "last_error",
            "no disk",
            "last_error_type",
            "OSError",
            "failures",
            1,
        )
    )
    now = time.time()
    protocol.end(
        redis, ref("late-1"), End.retry(now + 600, wish="the upload is not there yet"), now
    )
    protocol.place(redis, "video", "late-1", now, "ada", priority=5)

    codes, text = why("late-1")

    assert codes == ["retry", "scheduled"] and "no disk" not in text
    assert (
        "It waits for its next attempt. The last one asked to run again later: the upload is not there yet"
        in text
    )


def test_a_due_task_that_nobody_can_put_in_line_is_overdue_after_ten_seconds_and_a_future_one_says_who_lacks(
    why, redis
):
    for name, queue, eta in (
        ("late-1", "audio", -31),
        ("soon-1", "video", -12),
        ("later-1", "audio", 3600),
    ):
        protocol.schedule(redis, queue, name, "1", time.time() + eta, time.time())

    (codes, text), later = why("late-1"), why("later-1")

    assert codes == ["overdue", "no_listener"]
    assert "It is overdue by 3" in text and "s: no scheduler has put it in line" in text
    assert "blueque-scheduler\n" in text
    assert why("soon-1")[0] == ["due"]
    assert later[0] == ["scheduled", "no_listener"]


def test_a_started_task_of_a_dead_listener_is_said_to_be_that(why, redis):
    start(redis, "running-1")
    protocol.fence(redis, "video", NODE, "i1", "0", 9.25)

    codes, text = why("running-1")

    assert codes == ["listener"]
    assert f"Its listener {NODE} is dead" in text


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (None, "the task counts as lost as soon as another host or a scheduler looks."),
        (2, "it is put in line again as attempt 2 as soon as another host or a scheduler looks."),
        (0, "the task counts as lost as soon as another host or a scheduler looks."),
    ],
)
def test_a_task_of_a_dead_listener_is_lost_or_put_in_line_again_by_its_policy(
    why, redis, cli, policy, words
):
    start(redis, "running-1")
    if policy is not None:
        cli.hset(keys.task("running-1"), "retry", f'{{"max":1,"interruptions":{policy}}}')
    cli.zadd("blueque_nodes_video", {NODE: time.time() - 3600})

    assert words in why("running-1")[1]


def test_a_failed_task_says_its_error(why, redis):
    start(redis, "failed-1")
    protocol.end(
        redis, ref("failed-1"), End.fail("boom\nat line 3", {"error_type": "E"}), time.time()
    )

    codes, text = why("failed-1")

    assert codes == ["ended"]
    assert "It has failed (E): boom\n" in text and "blueque requeue failed-1\n" in text


# What a person changes about a waiting task does not start its waiting anew


@pytest.fixture
def old(redis):
    """A task that has waited for 10 minutes behind another of another queue; an hour before it was
    made for later.
    """
    now = time.time()
    protocol.schedule(redis, "video", "old-task", "1", now - 600, now - 3600)
    protocol.enqueue_due(redis, "video", now - 600)
    return "old-task"


@pytest.mark.parametrize(
    "verb", [["--priority", "7"], ["--first"], ["--to", "audio"]], ids=lambda verb: verb[0]
)
def test_it_has_waited_as_long_as_before_wherever_that_is_shown(run, redis, client, old, verb):
    protocol.enqueue(redis, "video", "young", "1", time.time() - 30)
    protocol.place(redis, "video", "young", time.time() - 20, is_first=True)
    protocol.enqueue(redis, "other", "of-another", "1", time.time() - 60)

    assert run("move", old, *verb).returncode == 0

    queue = client.get_task(old).queue
    listed = json.loads(run("ls", "--state", "pending", "--json").stdout)["items"]
    shown = {item["id"]: item["for_seconds"] for item in listed}
    assert shown[old] == pytest.approx(600, abs=60)
    assert [item["id"] for item in listed].index(old) < [item["id"] for item in listed].index(
        "of-another"
    )
    assert {
        line["queue"]: line["oldest_seconds"]
        for line in json.loads(run("status", "--json").stdout)["queues"]
    }[queue] == pytest.approx(600, abs=60)
    assert "pending for 10 m" in run("why", old).stdout
    lines = run("metrics", "--once").stdout.splitlines()
    (oldest,) = [
        line
        for line in lines
        if line.startswith(f'blueque_oldest_pending_seconds{{queue="{queue}"}}')
    ]
    assert float(oldest.split()[1]) == pytest.approx(600, abs=60)


@pytest.mark.parametrize(
    ("verb", "event", "facts"),
    [
        (["--priority", "7"], "prioritized", {"priority": 7}),
        (["--first"], "put_first", {}),
        (["--to", "audio"], "moved", {"from": "video"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_its_history_tells_who_has_changed_what(run, redis, client, old, verb, event, facts):
    protocol.enqueue(redis, "video", "young", "1", time.time())
    protocol.place(redis, "video", "young", time.time(), is_first=True)

    run("move", old, *verb)

    *_, last = client.get_history(old).events
    user = process.user_at_host().partition("@")[0]
    assert (last.event, last.by.partition("@")[0], last.facts) == (event, user, facts)
    assert f" {user}@" in run("history", old).stdout.splitlines()[-1]


def test_a_task_that_is_requeued_before_its_time_has_waited_since_then(run, redis, client):
    now = time.time()
    protocol.schedule(redis, "video", "soon", "1", now + 3600, now - 3600)
    protocol.cancel(redis, "video", "soon", "ann", None, now - 1800)
    protocol.requeue(redis, "video", "soon", "mark", now - 600)

    (item,) = json.loads(run("ls", "--state", "pending", "--json").stdout)["items"]

    assert item["for_seconds"] == pytest.approx(600, abs=60)
