"""What a type checker sees of `blueque` in a program of a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from running import ROOT

GOOD = """
import asyncio
import dataclasses
import functools
from typing import TypedDict

import blueque
from blueque import Client, Count, ForkingRunner, Handler, QueueHandler, RunningTask, Status, Task, TaskId
from blueque import current_task
from blueque.testing import Ended, run_task


def encode(task: RunningTask) -> dict[str, int]:
    task.progress(1, 2, "frames")
    return {"frames": 2}


handler: Handler = encode
client = Client()
ForkingRunner(client, "video", lambda task: task.parameters)
count: Count = client.get_queue("video").enqueue_many([1, 2])
print(count.new, current_task().resources)


class Film(TypedDict):
    title: str


@blueque.handler("films", retry=3, time_limit="2h")
def film(task: RunningTask, film: Film) -> str:
    return film["title"]


@blueque.handler("scenes")
async def scene(task: RunningTask) -> None:
    await asyncio.sleep(1)


@dataclasses.dataclass
class Cut:
    at: float


@blueque.handler("cuts", "more", retry=2)
def cut(task: RunningTask, cut: Cut) -> Film:
    return {"title": f"from {cut.at}"}


@blueque.handler("sounds")
async def sound(task: RunningTask, cut: Cut) -> int:
    return 3


@blueque.handler("copies")
def copy(task: RunningTask, number: int) -> blueque.Then[str]:
    return blueque.Then("done", [])


@blueque.handler("copies.later")
async def copied(task: RunningTask, number: int) -> int | blueque.Then[int]:
    return blueque.Then(number, []) if number else 0


number: int = client.wait(copied.enqueue(3)).result
made: Task[Film] = client.wait(cut.enqueue(Cut(1.5), client=client), timeout=9)
print(made.result["title"].upper(), cut(current_task(), Cut(2.5))["title"])
several: list[Task[Film]] = client.wait(cut.enqueue_many([Cut(1.5)], ids=True))
several = client.wait([cut.enqueue(Cut(1.5), queue="more"), cut.enqueue(Cut(2.5))])
ids: list[TaskId] = client.get_queue("video").enqueue_many([1, 2], ids=True)


async def make_many(flag: bool) -> Count | list[TaskId]:
    queue: blueque.AsyncQueue = blueque.AsyncClient().get_queue("video")
    print((await queue.enqueue_many([1])).new, (await queue.enqueue_many([1], ids=True))[0].is_new)
    several: Count | list[TaskId[Film]] = cut.enqueue_many([Cut(1.5)], ids=flag)
    ids = client.get_queue("video").enqueue_many([1], ids=flag)
    return several or ids or await queue.enqueue_many([1], ids=flag)


seconds: int = client.wait(sound.enqueue(Cut(1.5))).result + asyncio.run(
    sound(current_task(), Cut(1.5))
)
ended: str = client.get_task(copy.enqueue(3)).wait().result + next(
    client.as_ended([copy.enqueue(4)])
).result
status: Status | None = made.status
later: str = client.wait(cut.task_id("an id")).result["title"]
tried: Ended[Film] = run_task(cut, Cut(1.5), queue="more")
print(tried.result["title"], run_task(sound, Cut(1.5)).result + 1, run_task(scene).outcome)
print(run_task(encode, 3).result["frames"], run_task(lambda task: task.id).result.upper())


class Encoder:
    def __call__(self, task: RunningTask) -> int:
        return 3


handler = Encoder()
print(run_task(Encoder(), 3).result + 1, run_task(functools.partial(encode)).outcome, {film: 1})


def look(task: Task, id: TaskId) -> list[str]:
    found: list[str] = client.wait("an id").result + client.wait(["an id"])[0].result
    return found if task.status == "complete" else client.get_task(id).result


typed: QueueHandler[Film, str] = film
title: str = film(current_task(), {"title": "M"})
film.enqueue({"title": "M"}, key="m", priority=3, client=client)
film.schedule({"title": "M"}, 4e9)
print(film.enqueue_many([{"title": "M"}], keys="title").new, scene.enqueue({"any": "thing"}))
other: Handler = scene
"""
DECORATED = """
import blueque


@blueque.handler("films")
def film(task: blueque.RunningTask, title: str) -> int:
    return len(title)


"""
RUN = f"{DECORATED}from blueque.testing import run_task\n"
BAD = {
    f"{DECORATED}film.enqueue(3)\n": 'Argument 1 to "enqueue" of "QueueHandler" has incompatible type "int"',
    f"{DECORATED}film.schedule(3, 4e9)\n": 'Argument 1 to "schedule"',
    f"{DECORATED}film.enqueue_many([3])\n": 'expected "str"',
    f"{DECORATED}film.enqueue('M', prioriti=3)\n": 'Unexpected keyword argument "prioriti"',
    f"{DECORATED}film(blueque.current_task(), 3)\n": 'Argument 2 to "__call__"',
    f"{DECORATED}blueque.Client().wait(film.enqueue('M')).result.upper()\n": '"int" has no attribute "upper"',
    f"{DECORATED}blueque.Client().wait([film.enqueue('M')])[0].result.upper()\n": '"int" has no attribute "upper"',
    f"# pyright: strict\n{DECORATED}print(blueque.Client().wait(film.enqueue('M')).status == 'ok')\n": "Non-overlapping",
    f"{RUN}run_task(film, 3)\n": "Cannot infer value of type parameter",
    f"{RUN}run_task(film, 'M').result.upper()\n": '"int" has no attribute "upper"',
    f"{DECORATED}@blueque.handler('b')\ndef of_none() -> None: ...\n": 'to "__call__" of "Decorator" has incompatible type',
    "from blueque import Cleint\n": 'has no attribute "Cleint"',
    "import blueque\nblueque.Clientt()\n": 'has no attribute "Clientt"',
    "from blueque import Handler\n\ndef run() -> None: ...\n\nhandler: Handler = run\n": "Incompatible types",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("typed")
    for number, text in enumerate([GOOD, *BAD]):
        (directory / (f"bad_{number}.py" if number else "good.py")).write_text(text)
    return directory


def checked(*command: str, **environ: str) -> str:
    """Return what a type checker says, which has found errors."""
    command = (sys.executable, "-m", *command)
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environ
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_mypy_knows_all_that_a_handler_uses_and_no_misspelt_name(programs):
    """It runs once, with the settings of our own lint: so it finds the package in that one's cache."""
    files = map(str, programs.iterdir())
    said = checked("mypy", "--config-file", "pyproject.toml", *files, MYPYPATH=".")

    messages = defaultdict[str, str](str)
    for line in said.splitlines()[:-1]:
        path, _, message = line.partition(":")
        messages[Path(path).stem] += message
    errors = {f"bad_{number}": error for number, error in enumerate(BAD.values(), 1)}
    assert messages.keys() == errors.keys(), said
    for name, error in errors.items():
        assert error in messages[name], said


def test_pyright_accepts_and_refuses_the_same(programs):
    said = json.loads(
        checked("pyright", "--outputjson", str(programs), PATH=os.environ["PATH"], PYTHONPATH=".")
    )

    refused = {Path(each["file"]).stem for each in said["generalDiagnostics"]}
    assert refused == {f"bad_{number}" for number in range(1, len(BAD) + 1)}, said
