"""The pages of docs/coming-from and the programs of examples/migrate, beside the real Celery, RQ and
1.0.0.
"""

from __future__ import annotations

import itertools
import re
import shlex
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import redis as redis_py
from faults import Fault, FaultProxy
from legacy import PYTHON as legacy_python
from running import BLUEQUE, LISTENER, ROOT, Program, Programs, outcome, until

from blueque import Client
from blueque.testing import drain

FENCED = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.M | re.S)
MIGRATE = ROOT / "examples" / "migrate"
COMMANDS = {"python": [sys.executable], "blueque": BLUEQUE, "blueque-listener": LISTENER}
TO_ENCODE = "video.encode(film, size)=encode"
CELERY_WORKER = [sys.executable, "-m", "celery", "-A", "video", "worker", "-P", "solo"]
RQ_WORKER = [str(Path(sys.executable).parent / "rq"), "worker", "video", "--url"]

# What is in their queues beside the work of the programs of the pages.
CELERY = """
    from datetime import date, datetime
    from celery import chord
    from video import app, encode

    @app.task
    def thumb(film):
        pass

    def send(*args, task=encode, **options):
        task.apply_async(args, **options)

    send("last.mov", priority=9)
    send("third.mov", priority=3)
    send("first.mov", 720)
    send("second.mov", task_id="no id of ours")
    send("fourth.mov", priority=3, task_id="number-4", expires=3600, time_limit=60)
    send("scheduled.mov", task_id="later", eta=datetime(2100, 1, 1))
    send("link.mov", link=thumb.si("link.mov"))
    send("pickle.mov", serializer="pickle")
    send(date(2026, 1, 1))
    send("thumb.mov", task=thumb)
    chord([encode.s("chord.mov")], thumb.si("chord.mov")).delay()
"""
RQ = """
    from datetime import UTC, date, datetime
    from redis import Redis
    from rq import Callback, Queue
    from rq.serializers import JSONSerializer
    from video import encode

    redis = Redis.from_url("redis://localhost:6379/0")
    queue = Queue("video", connection=redis)
    queue.enqueue(encode, "second.mov", job_id="_no_id_of_ours")
    queue.enqueue(encode, "first.mov", 720, at_front=True)
    Queue("video", connection=redis, serializer=JSONSerializer).enqueue(encode, "third.mov", job_timeout=-1)
    options = {"job_id": "number-4", "job_timeout": 60, "ttl": 3600, "meta": {"customer": 17}}
    queue.enqueue(encode, "fourth.mov", **options)
    queue.enqueue_at(datetime(2100, 1, 1, tzinfo=UTC), encode, "scheduled.mov", job_id="later")
    parent = queue.enqueue(encode, "parent.mov")
    queue.enqueue(encode, "child.mov", depends_on=parent)
    queue.enqueue(encode, date(2026, 1, 1))
    queue.enqueue(encode, b"bytes.mov")
    queue.enqueue(encode, "callback.mov", on_success=Callback(encode))
    queue.enqueue(print, "print.mov")
    redis.hset("rq:job:_no_id_of_ours", "meta", b"")
    for field in ("data", "meta"):
        redis.hset(queue.enqueue(encode, f"{field}.mov").key, field, b"of another serializer")
"""


class Place(NamedTuple):
    """A queue of another system."""

    move: list[str]  # the program, up to the address of Redis
    fill: str
    films: list[str]  # those that can be moved and run, in order
    left: set[str]  # what is named
    lists: dict[str, int]  # and the lists that it stays in
    take: Callable[[redis_py.Redis], object]  # what a worker does
    list_of_taken: dict[str, int]


PLACES = {
    "celery": Place(
        [str(MIGRATE / "celery_to_blueque.py"), TO_ENCODE, "--broker"],
        CELERY,
        ["first.mov", "second.mov", "third.mov", "fourth.mov", "last.mov"],
        {
            "left ID, video.encode: it has callbacks",
            "left ID, video.encode: its content is application/x-python-serialize",
            "left ID, video.encode: an argument, such as a datetime, is not JSON",
            "left ID, video.thumb: it is not on the command line",
            "left ID, video.encode: it has chord",
        },
        {"celery": 5},
        lambda redis: redis.rpop("celery"),
        {},
    ),
    "rq": Place(
        [str(MIGRATE / "rq_to_blueque.py"), TO_ENCODE, "--queue", "video", "--redis"],
        RQ,
        ["first.mov", "second.mov", "third.mov", "fourth.mov"],
        {
            "left ID, video.encode('parent.mov'): other jobs wait for it",
            "left ID, video.encode(datetime.date(2026, 1, 1)): it holds a datetime.date, which is not JSON",
            "left ID, video.encode(b'bytes.mov'): parameters[\"film\"] is of the type bytes, which JSON"
            " does not have; pass a str of base64",
            "left ID, video.encode('callback.mov'): it has success_callback_name",
            "left ID, builtins.print('print.mov'): builtins.print is not on the command line, or is a method",
            "left ID, video.encode('data.mov'): its data cannot be read",
            "left ID, video.encode('meta.mov'): its data cannot be read",
            "left ID, video.encode('child.mov'): it waits for other jobs",
        },
        {"rq:queue:video": 7},
        lambda redis: redis.lmove("rq:queue:video", "rq:queue:video:intermediate"),
        {"rq:queue:video:intermediate": 1},
    ),
}


@pytest.fixture
def programs(url, tmp_path):
    with Programs(url, tmp_path, {"BLUEQUE_REDIS_URL": url}) as programs:
        yield programs


@pytest.fixture(params=PLACES)
def place(request, programs) -> Place:
    """A place beside the programs of its page."""
    write_programs(programs, f"{request.param}.md")
    return PLACES[request.param]


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each block of a page."""
    for indent, language, text in FENCED.findall((ROOT / "docs/coming-from" / page).read_text()):
        yield language, textwrap.dedent(text) if indent else text


def write_programs(programs: Programs, page: str) -> None:
    """Write the programs of a page under their names."""
    for _, text in blocks(page):
        if name := re.match(r"# (\w+\.py)\n", text):
            programs.write(at_the_server(programs, text), name[1])


def at_the_server(programs: Programs, text: str) -> str:
    own = f'Redis.from_url("{programs.url}")'
    return text.replace("redis://localhost:6379/0", programs.url).replace("Redis()", own)


def run(programs: Programs, *command: str) -> list[str]:
    """Run a program to its end, and return the lines that it prints."""
    program = programs.start([*command])
    assert program.wait() == 0, program.log
    return program.printed.splitlines()


def without_ids(lines: list[str]) -> set[str]:
    return {re.sub(r"^left [\w-]+,", "left ID,", line) for line in lines}


def move(programs: Programs, place: Place, *options: str) -> list[str]:
    return run(programs, sys.executable, *place.move, programs.url, *options)


def fill(programs: Programs, text: str) -> None:
    programs.write(at_the_server(programs, text), "fill.py")
    run(programs, sys.executable, "fill.py")


def lists(cli: redis_py.Redis) -> dict[str, int]:
    """Return how long the lists are that are not of Blueque."""
    keys = [key for key in cli.keys("*") if not key.startswith("blueque_")]
    return {key: cli.llen(key) for key in keys if cli.type(key) == "list"}


def films_moved(client: Client) -> list[str]:
    """Run the tasks that are in line, and return the films that they encode."""
    tasks: list[dict[str, object]] = []
    drain(client, {"encode": lambda task: tasks.append(task.parameters)})
    assert all(task.get("size", 720) == 720 for task in tasks)
    return [str(task["film"]) for task in tasks]


def move_until(change: int, programs: Programs, place: Place, proxy: FaultProxy) -> Program:
    """Move tasks, and kill the program while it waits for the answer to its nth change in Redis."""
    program = programs.start(
        [sys.executable, *place.move, proxy.url], environ={"BLUEQUE_REDIS_URL": proxy.url}
    )
    changes = itertools.count(1)

    def kill(data: bytes) -> None:
        if (b"EXEC" in data or b"LREM" in data) and next(changes) == change:
            program.send(signal.SIGKILL)
            proxy.arm(Fault.CUT_AFTER)

    proxy.on_write = kill
    program.wait()
    until(lambda: not proxy.connections, what="the end of the change")
    return program


def test_each_task_moves_once_whenever_the_program_is_killed(
    place, programs, proxy, client, cli, state
):
    fill(programs, place.fill)
    before = state()
    number = len(place.films) + 1  # with the scheduled one
    said = without_ids(move(programs, place, "--dry-run"))
    assert said == {f"{number} to move to encode", *place.left}
    assert state() == before

    killed_at, change = [], 1
    while (program := move_until(change, programs, place, proxy)).wait() != 0:
        assert program.wait() == -signal.SIGKILL, program.log
        at = (lists(cli), len(cli.keys("blueque_task_*")))
        # What an earlier run has enqueued is enqueued again, without effect.
        change = change + 1 if killed_at[-1:] == [at] else 1
        killed_at += [at] if change == 1 else []
        assert len(killed_at) <= 3 * number  # each is taken, enqueued, and forgotten

    assert len(killed_at) == 3 * number
    assert without_ids(program.printed.splitlines()) == place.left
    assert lists(cli) == place.lists
    later, number_4 = client.get_task("later"), client.get_task("number-4")
    assert (later.status, later.fields["eta"]) == ("scheduled", "4102444800.0")
    assert float(number_4.fields["start_before"]) - time.time() < 3600
    assert number_4.fields["time_limit"] == "60"
    if place is PLACES["rq"]:
        assert (later.time_limit, number_4.context) == (None, {"customer": 17})
    assert films_moved(client) == place.films


def test_a_task_that_a_worker_takes_at_the_same_time_is_left_to_it(
    place, programs, proxy, client, cli
):
    fill(programs, place.fill)
    taken = []
    proxy.on_write = lambda data: (
        taken.append(place.take(cli)) if b"EXEC" in data and not taken else None
    )

    run(programs, sys.executable, *place.move, proxy.url)

    assert taken[0] and lists(cli) == place.lists | place.list_of_taken
    assert films_moved(client) == place.films[1:]


def test_what_workers_of_celery_had_fetched_moves_when_they_have_stopped(programs, client, cli):
    place = PLACES["celery"]
    write_programs(programs, "celery.md")
    send = (
        "from video import encode; encode.apply_async(['a.mov'], countdown=3600, task_id='later')"
    )
    run(programs, sys.executable, "-c", send)
    worker = programs.start(CELERY_WORKER)
    until(lambda: cli.hlen("unacked"), what="a task that a worker has fetched")
    refused = programs.start([sys.executable, *place.move, programs.url, "--unacked"])
    assert refused.wait() == 1
    assert refused.log == "Error: A Celery worker or Flower is connected: stop it first.\n"

    worker.stop(signal.SIGKILL)
    until(lambda: all(seen["psub"] == "0" for seen in cli.client_list()), what="its end")

    assert move(programs, place) == []
    assert move(programs, place, "--unacked") == ["1 moved to encode"]
    assert client.get_task("later").status == "scheduled"
    assert (cli.exists("unacked", "unacked_index"), lists(cli)) == (0, {})


def test_what_the_scheduler_of_rq_may_take_is_left_to_it(programs, cli):
    cli.set("rq:scheduler-lock:video", "a scheduler")
    place = PLACES["rq"]
    refused = programs.start([sys.executable, *place.move, programs.url])
    assert refused.wait() == 1
    assert "stop the workers with --with-scheduler" in refused.log

    cli.delete("rq:scheduler-lock:video")
    unknown = programs.start([sys.executable, *place.move, programs.url])
    assert unknown.wait() == 2
    assert "RQ has no queue video in this Redis." in unknown.log


@pytest.mark.parametrize("place", PLACES)
def test_the_words_of_the_command_line_are_checked(programs, place):
    wrong = programs.start([sys.executable, PLACES[place].move[0], "encode"])
    assert wrong.wait() == 2
    assert "Write each as 'video.encode(film, size)=encode'." in wrong.log


@pytest.mark.parametrize(
    ("page", "worker"), [("celery.md", CELERY_WORKER), ("rq.md", [*RQ_WORKER, "URL"])]
)
def test_the_programs_before_and_after_do_the_same(programs, page, worker):
    write_programs(programs, page)
    programs.start([programs.url if word == "URL" else word for word in worker])
    programs.listen("--module", "tasks", "--slots", "4")

    assert run(programs, sys.executable, "video.py") == ["a.mov at 720"]
    assert run(programs, sys.executable, "tasks.py") == ["a.mov at 720"]


@pytest.mark.parametrize("page", ["celery.md", "rq.md", "airflow.md"])
def test_the_commands_of_the_pages_can_be_copied(programs, page, cli):
    write_programs(programs, page)
    fill(programs, {"celery.md": CELERY, "rq.md": RQ}.get(page, ""))
    (text,) = (text for language, text in blocks(page) if language == "sh")
    if page == "airflow.md":
        text += "blueque schedule trigger nightly\n"
        text = "".join(sorted(text.splitlines(keepends=True), key=lambda line: "listener" in line))
        text = text.replace("--slots 4", "--until-empty")
    address = {"celery.md": "--broker", "rq.md": "--redis"}.get(page)
    for line in text.splitlines():
        name, *words = shlex.split(line)
        if name == "python":
            words[0:1] = [str(ROOT / words[0]), address, programs.url]
        run(programs, *COMMANDS[name], *words)
    results = [cli.hget(key, "result") for key in cli.keys("blueque_task_*")]
    assert ("intro.exr + chase.exr" in results) if page == "airflow.md" else results


def test_blueque_2_takes_over_from_1_0_0(programs, legacy, client):
    write_programs(programs, "1.0.0.md")
    programs.write("", "work.py")  # which `legacy` imports
    runner = programs.start([str(legacy_python), "-I", "before.py"])
    video = {"film": "a.mov"}
    assert outcome(client, client.get_queue("encode").enqueue(video)).result == "a.mov"
    runner.stop(signal.SIGKILL)
    programs.listen("--module", "tasks")
    (text,) = legacy.run("say(client.get_queue('encode').enqueue(json.dumps(argv[0])))", video)
    tasks = [text, client.get_queue("encode").enqueue(video)]
    assert [outcome(client, task).result for task in tasks] == ["a.mov", "a.mov"]
