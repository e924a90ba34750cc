"""Systems without fork, /proc and poll: producers and commands work there, and what needs Linux says so."""

from __future__ import annotations

import sys

import pytest
from grouped import run_all
from running import ROOT, Programs

from blueque import Client

PRODUCER = """
    import itertools, os, select, sys
    from blueque import Client, WaitTimedOut, current_task, handler

    assert not {"fork", "geteuid"} & {*dir(os)} and not hasattr(select, "poll"), "this is Linux"

    @handler("work")
    def work(task):
        return current_task()

    client = Client(os.environ["BLUEQUE_REDIS_URL"], max_bytes=2**24, patience=0)
    queue = client.get_queue("work")
    places = client.get_event_places("work")
    task = work.enqueue({"scene": "intro"})
    queue.schedule("in 2033", 2e9)
    queue.enqueue_many([1, 2, 3])
    queue.enqueue("x" * 2**24)  # more than the kernel takes at once
    client.group("night").open()
    queue.enqueue("of the night", group="night")
    try:
        client.wait(task, timeout=0.05)
    except WaitTimedOut:
        print("waiting", file=sys.stderr, flush=True)
    done = client.wait(task)
    print(client.get_task(done.id).status, done.result)
    events = (event.event for event in client.events("work", after=places) if event.task == task)
    print(*itertools.islice(events, 3))
"""
COMMANDS = """
    import importlib, os, sys
    from blueque.cli.main import VERBS, main

    for verb in VERBS:
        importlib.import_module(f"blueque.cli.verbs.{verb}")
    read, write = os.pipe()
    os.write(write, b"1\\n2\\n")
    os.close(write)
    os.dup2(read, 0)
    sys.argv = ["blueque", "enqueue", "work", "--lines"]
    main()
"""
REFUSAL = """\
{}: listeners and schedulers need Linux, and this is macOS
Run them in a container, or in WSL on Windows. Everything else of Blueque runs here.
"""


@pytest.fixture
def programs(url, tmp_path):
    path = f"{ROOT}/tests/elsewhere:{ROOT}"
    with Programs(url, tmp_path, {"BLUEQUE_REDIS_URL": url, "PYTHONPATH": path}) as programs:
        yield programs


def test_a_producer_needs_nothing_of_linux(programs: Programs, client: Client):
    programs.write(PRODUCER, "producer.py")
    producer = programs.start([sys.executable, "producer.py"])
    producer.says("waiting")

    assert run_all(client, "work") == 6
    assert producer.wait() == 0, producer.log
    assert producer.printed.splitlines() == ["complete done", "reserved started complete"]


def test_every_verb_can_be_imported_and_lines_are_enqueued(programs: Programs):
    programs.write(COMMANDS, "commands.py")
    commands = programs.start([sys.executable, "commands.py"])

    assert commands.wait() == 0, commands.log
    assert len(commands.printed.split()) == 2


@pytest.mark.parametrize(
    ("code", "program"),
    [
        ("linux_only.listener()", "blueque-listener"),
        ("linux_only.scheduler()", "blueque-scheduler"),
        ("main.main()", "blueque"),  # dev
    ],
)
def test_what_needs_linux_says_so(programs: Programs, code, program):
    command = [sys.executable, "-c", f"from blueque.cli import linux_only, main; {code}", "dev"]
    refused = programs.start(command)

    assert refused.wait() == 78
    assert (refused.printed, refused.log) == ("", REFUSAL.format(program))
