"""Workflows of more tasks than one transaction takes, as listeners run them, and as a producer that
is killed leaves them.
"""

from __future__ import annotations

import signal
import sys

from running import outcome, until

from blueque import after
from blueque.model import keys
from blueque.queries.dependencies import kinds

WORK = """
    def run(task):
        return task.parameters
"""
FLOW = """
    from blueque import after

    def flow(client):
        flow = client.workflow("night", broken="cancel")
        root = flow.add("work", "root", key="root")
        chain = [root]
        for number in range(40):
            chain.append(flow.add("work", f"link {number}", key=f"link {number}", after=chain[-1]))
        parts = [flow.add("work", number, key=number, after=root) for number in range(180)]
        flow.add("work", "join", key="join", after=parts, results=True)
        flow.add("work", "first", key="first", after=after(any=chain[-1]))
        flow.add("other", "last", key="last", after=[*parts[:50], chain[-1], flow.id_of("join")])
        return flow
"""
HALFWAY = """
    import signal
    import sys
    from flow import flow
    from blueque import Client
    from blueque.producer import workflow_writer

    extend = workflow_writer.extend_graph

    def extend_once(*arguments):
        made = extend(*arguments)
        print("halfway:", made, file=sys.stderr, flush=True)
        signal.pause()  # until it is killed

    workflow_writer.extend_graph = extend_once
    flow(Client(sys.argv[1])).commit()
"""
WHOLE = """
    import sys
    from flow import flow
    from blueque import Client

    print("new:", flow(Client(sys.argv[1])).commit(), file=sys.stderr, flush=True)
"""


def commit(programs, url, text):
    script = programs.write(text, "producer.py")
    return programs.start([sys.executable, str(script), url])


def test_what_a_killed_producer_has_begun_runs_only_when_another_one_has_finished_it(
    programs, client, url, cli
):
    programs.write(FLOW, "flow.py")
    programs.listener("work:run", "--reuse", "100", slots=2)
    programs.listener("work:run", queue="other", spool="another")
    programs.scheduler()
    producer = commit(programs, url, HALFWAY)
    producer.says("halfway: 2")
    flow = client.workflow("night")

    assert producer.is_running
    producer.stop(signal.SIGKILL)
    seen = flow.progress()
    assert seen.state == "making" and 0 < seen.members == seen.open < 224
    assert seen.members == cli.zcard(keys.blocked("work"))
    # A task that comes later runs: these listeners would have begun the others.
    assert outcome(client, client.get_queue("work").enqueue("beside")).result == "beside"
    assert flow.progress().open == seen.members
    assert client.get_task(flow.id_of("root")).status == "blocked"

    commit(programs, url, WHOLE).says("new: True")

    for key in ("last", "join", "first"):
        assert outcome(client, flow.id_of(key), 60).status == "complete"
    until(lambda: flow.progress().state == "ended", what="the workflow has ended")
    seen = flow.progress()
    assert (seen.members, seen.open, seen.bad) == (224, 0, 0)
    tasks = [client.get_task(task) for task in cli.zrange(keys.members("night"), 0, -1)]
    times = {task.id: (task.started, task.finished, task.attempt) for task in tasks}
    for task in tasks:
        assert task.attempt == 1
        for parent in kinds(client.connections, task.id):
            if parent in times:
                assert times[parent][1] <= times[task.id][0], (parent, task.id)
    joined = client.get_inspector().inputs(flow.id_of("join"))
    assert sorted(joined) == sorted(flow.id_of(number) for number in range(180))


def test_a_large_fan_out_fan_in_and_diamond_run_in_their_order(programs, client):
    flow = client.workflow("day")
    root = flow.add("work", "root")
    left = [flow.add("work", f"left {number}", after=root) for number in range(101)]
    right = [flow.add("work", f"right {number}", after=root) for number in range(100)]
    sides = [flow.add("work", "side", after=side) for side in (left, right)]
    end = flow.add("work", "end", after=sides)
    ended = flow.add("work", "ended", after=after(any=left[0]))
    assert flow.commit()
    joined = client.get_queue("work").enqueue("joined", after=flow)

    programs.listener("work:run", "--reuse", "100", slots=2)

    assert outcome(client, joined, 60).status == "complete"
    tasks = {task: client.get_task(task) for task in (root, *left, *right, *sides, end, ended)}
    assert {task.status for task in tasks.values()} == {"complete"}
    for task, parents in (
        (sides[0], left),
        (sides[1], right),
        (end, sides),
        *((each, [root]) for each in (*left, *right)),
    ):
        assert max(tasks[parent].finished for parent in parents) <= tasks[task].started
