"""What a type checker sees of `blueque` in a program of a user."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from running import ROOT

GOOD = """
import asyncio
from typing import TypedDict

import blueque
from blueque import Client, Count, ForkingRunner, Handler, QueueHandler, RunningTask, current_task


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
BAD = {
    f"{DECORATED}film.enqueue(3)\n": 'Argument 1 to "enqueue" of "QueueHandler" has incompatible type "int"',
    f"{DECORATED}film.schedule(3, 4e9)\n": 'Argument 1 to "schedule"',
    f"{DECORATED}film.enqueue_many([3])\n": 'expected "str"',
    f"{DECORATED}film.enqueue('M', prioriti=3)\n": 'Unexpected keyword argument "prioriti"',
    f"{DECORATED}film(blueque.current_task(), 3)\n": 'Argument 2 to "__call__"',
    f"{DECORATED}@blueque.handler('b')\ndef of_none() -> None: ...\n": 'to "__call__" of "Decorator" has incompatible type',
    "from blueque import Cleint\n": 'has no attribute "Cleint"',
    "import blueque\nblueque.Clientt()\n": 'has no attribute "Clientt"',
    "from blueque import Handler\n\ndef run() -> None: ...\n\nhandler: Handler = run\n": "Incompatible types",
}


def test_a_type_checker_knows_all_that_a_handler_uses_and_no_misspelt_name(tmp_path):
    """It runs once, with the settings of our own lint: so it finds the package in that one's cache."""
    errors = {f"bad_{number}": error for number, error in enumerate(BAD.values())}
    for name, text in zip(["good", *errors], [GOOD, *BAD], strict=True):
        (tmp_path / f"{name}.py").write_text(text)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", *tmp_path.iterdir()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={"MYPYPATH": "."},
    )

    assert done.returncode == 1, done.stdout + done.stderr
    messages = defaultdict(str)
    for line in done.stdout.splitlines()[:-1]:
        path, _, message = line.partition(":")
        messages[Path(path).stem] += message
    assert messages.keys() == errors.keys(), done.stdout
    for name, error in errors.items():
        assert error in messages[name], done.stdout
