"""Tasks that wait for others, as listeners run them."""

from __future__ import annotations

import time

import pytest
from running import outcome
from transactions import protocol

from blueque import Retry
from blueque.model import keys

WORK = """
    import os
    from blueque import InvalidInput

    def run(task):
        if task.parameters == "fail once" and task.attempt == 1:
            raise OSError("the network is away")
        directory = os.environ["BLUEQUE_TASK_DIR"]
        try:
            given = task.inputs
        except InvalidInput as error:
            given = str(error)
        return {"name": task.parameters, "given": given, "files": sorted(os.listdir(directory))}
"""
SH = 'tr -d "\\n" <"$BLUEQUE_TASK_DIR/inputs"'  # its last line of output is the result


@pytest.fixture
def queue(client):
    return client.get_queue("work")


def test_a_chain_runs_in_its_order_and_hands_on_its_results(client, programs, queue):
    first = queue.enqueue("first")
    second = client.get_queue("other").enqueue("second", after=first, results=True)
    third = queue.enqueue("third", after=second, results=True)

    # Nothing else serves this Redis, and no beat comes soon.
    programs.listener("work:run", "--beat", "20s", slots=2)
    programs.listener("work:run", "--beat", "20s", queue="other", spool="another")

    task = outcome(client, third)
    by_second = task.result["given"]
    assert [*by_second] == [second]
    assert by_second[second]["given"] == {first: client.get_task(first).result}
    tasks = [client.get_task(task_id) for task_id in (first, second, third)]
    assert tasks[0].finished <= tasks[1].started and tasks[1].finished <= tasks[2].started
    assert [task.attempt for task in tasks] == [1, 1, 1]


def test_a_task_has_the_results_of_all_its_parents_in_their_order_at_each_attempt(
    client, programs, queue
):
    parents = [queue.enqueue(f"part {number}") for number in range(20)]
    joined = queue.enqueue("fail once", after=parents, results=True, retry=Retry(1, 0))

    programs.listener("work:run", slots=4)

    task = outcome(client, joined)
    given = task.result["given"]
    assert task.attempt == 2 and [*given] == parents
    assert [result["name"] for result in given.values()] == [f"part {n}" for n in range(20)]


def test_a_program_has_the_results_in_a_file(client, programs, queue):
    parent = queue.enqueue("parent")
    child = client.get_queue("shell").enqueue("", after=parent, results=True)

    programs.listener("work:run")
    programs.listener("--exec", "sh", "-c", SH, queue="shell", spool="another")

    given = outcome(client, child).result
    assert given.startswith(f'{{"{parent}": {{"name":"parent",')


def test_a_task_that_wants_no_results_has_no_file_of_them(client, programs, queue):
    parent = queue.enqueue("parent")
    child = queue.enqueue("child", after=parent)

    programs.listener("work:run")

    assert outcome(client, child).result["given"] == {}
    assert "inputs" not in outcome(client, child).result["files"]


@pytest.mark.parametrize("spoil", ["left out", "wrong type"])
def test_a_task_learns_that_results_are_missing(client, cli, redis, programs, queue, spoil):
    parent = client.get_queue("other").enqueue("parent")
    child = queue.enqueue("child", after=parent, results=True)
    processor = client.get_processor(client.get_listener("other").listen())
    processor.start(77)
    processor.complete("done")
    protocol.settle(redis, parent, time.time())
    if spoil == "left out":
        cli.hset(keys.inputs(child), parent, "l")
    else:
        cli.delete(keys.inputs(child))
        cli.set(keys.inputs(child), "of another program")

    programs.listener("work:run")

    given = outcome(client, child).result["given"]
    assert given.startswith("the results of the tasks that it waited for take more than 64 MiB")
