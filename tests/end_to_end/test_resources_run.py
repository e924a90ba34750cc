"""Tasks that need some of what their node has: never more at a time than there is, whoever dies."""

from __future__ import annotations

import os
import signal
import time

import pytest
from handlers import ended, has_moved, pid_of
from running import is_there, until

from blueque.listener.resources import Pool

# Each task that runs is a file; what it has been given is its content.
WORK = """
    import json, os, signal, subprocess, sys, time
    from pathlib import Path

    def run(task):
        given = {name: value for name, value in os.environ.items() if name.startswith(("BLUEQUE_RESOURCE_", "CUDA_"))}
        mark = Path("running") / task.id
        mark.with_suffix(".new").write_text(json.dumps(given))
        mark.with_suffix(".new").rename(mark)
        if task.parameters == "leave a child":
            subprocess.Popen(["sh", "-c", "trap '' TERM; exec sleep 1000"])
        if task.parameters == "fork a helper" and os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
        while not (Path("go").exists() or Path(f"go.{task.id}").exists()):
            time.sleep(0.005)
        mark.unlink()
        return [task.resources, given]
"""
GPU = {"gpu": 1}


@pytest.fixture
def programs(programs):
    (programs.directory / "running").mkdir()
    return programs


@pytest.fixture
def pool(tmp_path):
    """Tell what is free, as a listener with two GPUs and 10 GiB sees it."""
    return Pool(str(tmp_path / "spool" / "resources"), {"gpu": 2, "memory": 10 * 2**30})


def start(programs, *resources: str, **options):
    words = [word for resource in resources for word in ("--resource", resource)]
    return programs.listener(
        "work:run", *words, "--beat", "0.2s", "--lease", "1s", "--lost-after", "5s", **options
    )


def enqueue(
    programs, *kinds: dict | None, queue: str = "work", parameters: str = "", **options
) -> list[str]:
    handle = programs.client.get_queue(queue)
    return [handle.enqueue(parameters, resources=kind, **options) for kind in kinds]


def marks(programs) -> set[str]:
    """Return the tasks that are running, by what they say themselves."""
    return {
        path.name for path in (programs.directory / "running").iterdir() if path.suffix != ".new"
    }


def run_by(programs, *task_ids: str) -> None:
    until(lambda: marks(programs) == set(task_ids), what=f"the running of {task_ids}")


def let_go(programs, *task_ids: str) -> None:
    for task_id in task_ids or ("",):
        (programs.directory / (f"go.{task_id}" if task_id else "go")).touch()


def test_no_more_tasks_run_than_there_are_gpus_and_each_sees_its_own(programs, pool):
    start(programs, "gpu=2", slots=4)
    tasks = enqueue(programs, *[GPU] * 4)
    until(lambda: len(marks(programs)) == 2, what="two of them")
    first = marks(programs)

    time.sleep(0.5)  # what is proved is that nothing happens

    assert marks(programs) == first
    assert pool.free()["gpu"] == 0
    assert {programs.client.get_task(task_id).fields["devices"] for task_id in first} == {
        "gpu=0",
        "gpu=1",
    }
    let_go(programs)
    results = [ended(programs.client, task_id).result for task_id in tasks]
    for resources, environ in results:
        (number,) = resources["gpu"]
        assert environ == {"CUDA_VISIBLE_DEVICES": str(number), "BLUEQUE_RESOURCE_GPU": str(number)}
    assert {environ["CUDA_VISIBLE_DEVICES"] for _, environ in results} == {"0", "1"}
    until(lambda: pool.free()["gpu"] == 2, what="both back")


@pytest.mark.parametrize("options", [("--no-warm",), ("--warm",)], ids=repr)
def test_a_handler_that_replaces_sockets_holds_what_its_task_has(programs, pool, options):
    """It arrives through a socket, after the import of the handler if that is warm."""
    replacing = (
        "import socket\nsocket.setdefaulttimeout(0.01)\nsocket.socket = socket.recv_fds = None\n"
    )
    programs.write(f"{replacing}from work import run\n", "film.py")
    programs.listener("film:run", "--resource", "gpu=2", *options, slots=2)
    for _ in range(2):
        one, two = enqueue(programs, GPU, GPU)
        run_by(programs, one, two)
        assert pool.free()["gpu"] == 0

        let_go(programs, one)

        assert ended(programs.client, one).status == "complete"
        until(lambda: pool.free()["gpu"] == 1, what="one back, though spares were forked beside it")
        let_go(programs, two)
        assert ended(programs.client, two).status == "complete"
        until(lambda: pool.free()["gpu"] == 2, what="both back")


def test_a_helper_that_a_task_forks_and_leaves_behind_holds_nothing_of_its_resources(
    programs, pool
):
    start(programs, "gpu=2")
    (task_id,) = enqueue(programs, GPU, parameters="fork a helper")
    run_by(programs, task_id)
    node = programs.client.get_task(task_id).node
    os.kill(pid_of(node), signal.SIGKILL)
    until(lambda: programs.client.get_task(task_id).node != node, what="the adoption")

    let_go(programs, task_id)

    assert ended(programs.client, task_id).status == "complete"
    until(lambda: pool.free()["gpu"] == 2, what="both free")


def test_amounts_are_handed_out_too_and_small_tasks_fill_what_is_left(programs, pool):
    start(programs, "memory=10GiB", slots=3)
    large, small = enqueue(programs, {"memory": "7GiB"}, {"memory": "3GiB"})
    run_by(programs, large, small)
    (waiting,) = enqueue(programs, {"memory": "1B"})

    let_go(programs, small)
    run_by(programs, large, waiting)
    let_go(programs)

    resources, environ = ended(programs.client, large).result
    assert resources == {"memory": 7 * 2**30}
    assert environ == {"BLUEQUE_RESOURCE_MEMORY": str(7 * 2**30)}


def test_a_task_that_asks_for_no_gpu_sees_none_where_they_are_handed_out(programs):
    start(programs, "gpu=2", environ={"CUDA_VISIBLE_DEVICES": "4,GPU-5"})
    let_go(programs)
    plain, both, second = enqueue(programs, None, {"gpu": 2}, GPU)

    assert ended(programs.client, plain).result == [{}, {"CUDA_VISIBLE_DEVICES": ""}]
    assert ended(programs.client, both).result == [
        {"gpu": [0, 1]},
        {"CUDA_VISIBLE_DEVICES": "4,GPU-5", "BLUEQUE_RESOURCE_GPU": "0,1"},
    ]
    assert ended(programs.client, second).result[1]["CUDA_VISIBLE_DEVICES"] == "4"


def test_where_no_gpus_are_handed_out_the_variable_stays_as_it_is(programs):
    start(programs, "memory=1GiB", environ={"CUDA_VISIBLE_DEVICES": "4"})
    let_go(programs)

    assert ended(programs.client, *enqueue(programs, None)).result == [
        {},
        {"CUDA_VISIBLE_DEVICES": "4"},
    ]


def test_a_program_gets_its_numbers_as_well(programs):
    variables = "$CUDA_VISIBLE_DEVICES $BLUEQUE_RESOURCE_GPU $BLUEQUE_RESOURCE_LICENCE_A_B"
    programs.write(f'#!/bin/sh\necho "{variables}"\n', "p.sh", 0o755)
    programs.listener("--resource", "gpu=2", "--resource", "licence.a-b=2000", "--exec", "./p.sh")

    task = ended(programs.client, *enqueue(programs, {"gpu": 2, "licence.a-b": 7}))

    assert task.result == "0,1 0,1 7"


def test_a_killed_task_gives_back_what_it_had(programs, pool):
    start(programs, "gpu=1", slots=2)
    one, two = enqueue(programs, GPU, GPU)
    run_by(programs, one)

    os.kill(programs.client.get_task(one).pid, signal.SIGKILL)

    assert ended(programs.client, one).error_type == "signal"
    until(lambda: two in marks(programs), what="the running of the next")


def test_what_a_task_leaves_running_is_ended_before_others_get_what_it_had(programs, pool):
    start(programs, "gpu=2", slots=2, grace="1s")
    (one,) = enqueue(programs, {"gpu": 2}, parameters="leave a child")
    run_by(programs, one)

    let_go(programs, one)
    until(lambda: not is_there(programs.client.get_task(one).pid), what="the end of its process")

    assert pool.free()["gpu"] == 0, "its child may use it"
    assert ended(programs.client, one).leaked == 1
    until(lambda: pool.free()["gpu"] == 2, what="its return")


def test_a_task_whose_listener_was_killed_keeps_what_it_has_until_it_ends(programs, pool):
    started = start(programs, "gpu=1", slots=2)
    one, two = enqueue(programs, GPU, GPU)
    run_by(programs, one)
    task = programs.client.get_task(one)

    os.kill(pid_of(task.node), signal.SIGKILL)
    has_moved(programs.client, task)

    assert marks(programs) == {one} and pool.free()["gpu"] == 1, (
        "of two, one of which its listener does not know"
    )
    let_go(programs, one)
    assert ended(programs.client, one).status == "complete"
    run_by(programs, two)
    assert started.is_running


def test_a_task_that_outlives_everything_keeps_what_it_has_until_it_ends(programs, pool):
    started = start(programs, "gpu=1")
    (one,) = enqueue(programs, GPU)
    run_by(programs, one)
    task, slots = programs.client.get_task(one), started.slots()
    started.stop(signal.SIGKILL)
    for slot in slots:
        os.kill(slot, signal.SIGKILL)

    start(programs, "gpu=1", slots=2, is_awaited=False)
    (two,) = enqueue(programs, GPU)
    has_moved(programs.client, task)

    assert marks(programs) == {one} and pool.free()["gpu"] == 1, (
        "of two, one of which its listener does not know"
    )
    let_go(programs, one)
    run_by(programs, two)


def test_a_node_whose_processes_were_all_killed_has_everything_back(programs, pool):
    started = start(programs, "gpu=2", slots=2)
    one, two = enqueue(programs, GPU, GPU)
    run_by(programs, one, two)
    tasks = [programs.client.get_task(task_id).pid for task_id in (one, two)]

    for pid in [started.pid, *started.slots(), *tasks]:
        os.kill(pid, signal.SIGKILL)

    until(lambda: pool.free()["gpu"] == 2, what="their return")


def test_listeners_of_other_queues_on_the_node_are_woken_by_what_comes_back(programs):
    """Else they would look again at their next beat only."""
    for queue in ("one", "two"):
        programs.listener(
            "work:run", "--resource", "gpu=1", "--beat", "100s", "--lease", "300s", queue=queue
        )
    (first,) = enqueue(programs, GPU, queue="one")
    run_by(programs, first)
    (second,) = enqueue(programs, GPU, queue="two")
    time.sleep(0.3)  # it has looked, and waits
    assert marks(programs) == {first}

    began = time.monotonic()
    let_go(programs, first)
    run_by(programs, second)

    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, "--resource gpu=2, but CUDA_VISIBLE_DEVICES names 1"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "--resource gpu=2, but CUDA_VISIBLE_DEVICES names 0"),
    ],
    ids=repr,
)
def test_more_gpus_than_cuda_lets_us_see_are_refused_at_the_start(programs, environ, said):
    started = programs.listener(
        "work:run", "--resource", "gpu=2", environ=environ, is_awaited=False
    )

    assert started.wait() == 78
    assert said in started.log


def test_a_listener_that_contradicts_another_of_its_node_is_refused_at_the_start(programs):
    start(programs, "gpu=2")
    same = start(programs, "gpu=2", "memory=1GiB")
    assert same.is_running
    inspector = programs.client.get_inspector()
    known = {
        inspector.registration("work", node)["resources"] for node in inspector.listeners("work")
    }
    assert known == {"gpu=2", f"gpu=2,memory={2**30}"}

    other = start(programs, "gpu=3", is_awaited=False)

    assert other.wait() == 78
    assert "--resource gpu=3, but another listener of this node has gpu=2" in other.log


def test_a_listener_behind_its_last_task_says_no_more_what_the_node_has_and_neither_does_the_task(
    programs,
):
    first = start(programs, "gpu=1", on_term="leave")
    (task,) = enqueue(programs, {"gpu": 1})
    run_by(programs, task)
    assert first.stop() == 0

    second = start(programs, "gpu=2", slots=2, is_awaited=False)

    second.says("register queue=work")
    assert marks(programs) == {task}
