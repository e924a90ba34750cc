"""The README and the pages of the guide are run: every block in its order, as if copied into one
shell.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import object_store
import pytest
from running import until

from blueque.model.ids import id_of_occurrence
from blueque.queries.listing import STATUSES
from blueque.settings.table import TABLES, VARIABLES, variable

ROOT = Path(__file__).parents[2]
GUIDE = re.findall(
    r"^\d+\. \[[^\]]+\]\((guide/[\w.-]+\.md)\)", (ROOT / "docs/README.md").read_text(), re.M
)
PAGES = ["README.md", *(f"docs/{page}" for page in GUIDE)]
TEXT = "".join((ROOT / page).read_text() for page in PAGES)
FENCED = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?"
    r"```(?P<language>\w*)(?: title=\"(?P<file>[\w.-]+)\")?\n(?P<text>.*?)^```$",
    re.M | re.S,
)
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PYTHON = shlex.quote(sys.executable)
MODULES = {
    "blueque": "blueque.cli.main",
    "blueque-listener": "blueque.cli.listener",
    "blueque-scheduler": "blueque.cli.scheduler",
}


GREETED = (
    "Edsger",
    "Radia",
    "Hedy",  # with a key in a group
    "Mary",
    "Edith",  # held until collected
    "Fran",  # with labels
    "Alan",
    "Barbara",
    "Katherine",
    "Grace",  # with an id of its own
    "Hedy",
    "Ada",
    "Grace",
    "Mary",
    "Joan",  # later
    "Mary",
    "Kurt",
    "Rosa",  # by their handler
    "Barbara",
    "Katherine",
    "Annie",
    "Mary",  # to start in time
    *["Annie"] * 3,  # of a schedule: a trigger and a backfill of two days
    "Edith",
    "Frances",
    "Margaret",
    "Radia",
    "Barbara",  # many at once
    "Ada",
    "Alan",  # with a policy, with limits
    "Dorothy",  # into a bounded queue
)


PHOTOS = (
    "garden",
    "harbour",
    "market",
    "meadow",
    "forest",
    "bin",
    "cover",
    "north",
    "east",
    "south",
    "ice",
    "snow",
    "shovel",
    "egg",
    "hare",
    "river",
    "fog",
    "rain",
)
ALBUMS = {
    "winter": "",
    "november": "",
    "autumn": "",
    "leaves": "",
    "easter": "small egg, small hare",
    "spring": "small garden, small harbour, small market",
    "summer": "small meadow",
    **{part: f"small {part}" for part in ("north", "east", "south")},
}


class Block(NamedTuple):
    """file: the name of the file that it is."""

    language: str
    file: str | None
    text: str
    is_run: bool


def _blocks(text: str) -> list[Block]:
    return [
        Block(
            match["language"],
            match["file"],
            match["text"],
            is_run=match["reason"] is None and match["language"] != "text",
        )
        for match in FENCED.finditer(text)
    ]


BLOCKS = _blocks(TEXT)
TOUR = _blocks((ROOT / "README.md").read_text())
TUTORIAL = _blocks((ROOT / "docs/tutorial.md").read_text())
RECIPES = _blocks((ROOT / "docs/recipes.md").read_text())
# What a person does with it: it has one terminal, and the line that it prints is copied to another.
BESIDE = """\
redis_of_the_guide=$BLUEQUE_REDIS_URL
{dev} >dev.log 2>&1 &
dev=$!
until grep -q 'export BLUEQUE_REDIS_URL=' dev.log; do sleep 0.1; done
eval "$(grep -o 'export BLUEQUE_REDIS_URL=.*' dev.log)"
"""
# `dev` notices that the module has changed: its two listeners start anew.
CHANGED = """\
listeners=$(grep -c ' register queue' dev.log)
{block}
until [ $(grep -c ' register queue' dev.log) -ge $((listeners + 2)) ]; do sleep 0.1; done
"""
# And at the end, as docs/guide/run-it-later.md says: Ctrl-C, and another Redis.
END_OF_DEV = """\
kill -INT $dev
wait $dev
cat dev.log
export BLUEQUE_REDIS_URL=$redis_of_the_guide
"""


@pytest.fixture
def server_of_verbs(tmp_path) -> Iterator[str]:
    """Yield the command that runs `blueque` in a fork: a fresh interpreter for each of 130 commands
    takes half of the processor time of the tour.
    """
    verbs, path = str(Path(__file__).parent / "verbs.py"), str(tmp_path / "verbs.sock")
    with subprocess.Popen([sys.executable, verbs, path], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        yield shlex.join([sys.executable, "-S", "-E", verbs, path, "run"])
        server.kill()


@pytest.fixture
def environ(server, server_of_verbs, tmp_path) -> dict[str, str]:
    """What the tour takes for granted: our programs on the path, a Redis at the usual port, a
    spool.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    commands = {name: f'exec {PYTHON} -m {module} "$@"' for name, module in MODULES.items()}
    commands["python"] = f'exec {PYTHON} "$@"'
    # `dev` gets signals, as those of a terminal: it is a process of its own.
    in_a_fork = f'[ "$1" = dev ] || exec {server_of_verbs} "$@"\n'
    commands["blueque"] = in_a_fork + commands["blueque"]
    for name, command in commands.items():
        _write_program(programs / name, command)
    # Not by the name redis-cli: that is this very program.
    ask = (
        "import sys; from blueque.demo.results import ask; port, *words = sys.argv[1:];"
        " port, words = (words[1].split(':')[2][:-2], words[2:]) if words[0] == '-u' else (port, words);"
        " print(*ask(port, *words), sep='\\n')"
    )
    _write_program(
        programs / "redis-cli", f'PATH=/nowhere exec {PYTHON} -c "{ask}" {server.port} "$@"'
    )
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "BLUEQUE_REDIS_URL": server.url,
        "BLUEQUE_SPOOL": str(tmp_path / "spool"),
    }


def _has_come_due(task_id: str, task: dict[str, str], began: float) -> bool:
    """Tell whether a schedule of the guide has made the task because the hour struck meanwhile."""
    planned = int(task.get("planned", 0))
    return planned >= began and task_id == id_of_occurrence(task["schedule"], planned)


def test_the_tour_does_what_it_says(environ, tmp_path, cli):
    tour = tmp_path / "tour"
    tour.mkdir()
    blocks = [_as_shell(block) for block in BLOCKS if block.is_run]
    first = sum(block.is_run for block in TOUR)
    script = "\n".join(["set -eu", *blocks[:first], END_OF_DEV, *blocks[first:], "wait"])

    began = time.time()
    with _shell(script, tour, environ) as shell:
        output, _ = shell.communicate(timeout=300)

    assert shell.returncode == 0, output
    found = {key.removeprefix("blueque_task_"): key for key in cli.keys("blueque_task_*")}
    tasks = [
        task
        for task_id, key in found.items()
        if not _has_come_due(task_id, task := cli.hgetall(key), began)
    ]
    ends = [task.get("result", task.get("error_type", task["status"])) for task in tasks]
    ends = [re.sub("GPU [01]", "GPU of its own", end) for end in ends]
    assert Counter("an id" if UUID.fullmatch(end) else end for end in ends) == Counter(
        [
            "rendered Metropolis",
            "published Metropolis",
            "14",
            "21",
            "done",
            *["7"] * 2,
            "published",
            "from 3 to 5",
            "encoded in attempt 2",
            "made",
            "AttributeError",
            *["cancelled"] * 3,
            *[f"small {photo}" for photo in PHOTOS],
            "an id",
            "shot opening",
            "shot chase",
            "shot opening, shot chase",
            *[f"{season}: {photos}" for season, photos in ALBUMS.items()],
            *["GPU "] * 5,
            "GPU of its own",
            '{"image":17}',
            *['{"video":17}'] * 2,
            *(f'{{"text":"Hello {name}"}}' for name in GREETED),
            *(
                f'{{"frame": {number}, "scene": "intro"}}' for number in range(1, 36)
            ),  # of the backlog
            *map(str, range(5)),  # of the group shot-7
        ]
    )
    until(
        lambda: not any(cli.smembers(key) for key in cli.keys("blueque_listeners_*")),
        what="the leaving of the listeners",
    )
    for shown in (
        "complete {'text': 'Hello Ada'} None",
        "Hello Grace",
        '{"text":"Hello Alan"}',
        "Redis is saved.",
        "AttributeError",
        "QUEUE",
        "complete",
        "the storage is being moved",
    ):
        assert shown in output


def test_the_tutorial_does_what_it_says(environ, tmp_path):
    began, *blocks = [block for block in TUTORIAL if block.is_run]
    script = ["set -eu", _as_shell(began)]
    for block in blocks:
        changes = block.file == "film.py" or ">>film.py" in block.text
        shell = _as_shell(block)
        script.append(CHANGED.format(block=shell) if changes else shell)

    with _shell("\n".join([*script, END_OF_DEV]), tmp_path, environ) as shell:
        output, _ = shell.communicate(timeout=120)

    assert shell.returncode == 0, output
    for said in (
        "complete after",
        "interrupted by a person",
        "20 new films\nseason autumn is ready\n0 new films\nseason autumn is ready\n",
        "It needs gpu=1, and no listener of films has that much",
        "nightly  next in",
        "1 passed",
    ):
        assert said in output
    (first,) = re.findall(r'"Die Nibelungen", "began at": (\d+)', output)
    assert 0 < int(first) < 150


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """Yield what programs need to find an imitation of S3. Of the module: pyarrow keeps descriptors."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in object_store.CREDENTIALS.items():
            patch.setenv(name, value)
        with object_store.serving() as address:
            own = {"AWS_ENDPOINT_URL": f"http://{address}", "AWS_DEFAULT_REGION": "us-east-1"}
            yield own | object_store.CREDENTIALS


def test_the_recipes_do_what_they_say(store, environ, tmp_path, client):
    script = "\n".join(["set -eu", *(_as_shell(block) for block in RECIPES if block.is_run)])
    with _shell(script, tmp_path, environ | store) as shell:
        output, _ = shell.communicate(timeout=120)

    assert shell.returncode == 0, output
    queues = ("video", "trainings", "trials", "sweeps", "messages", "thumbnails")
    tasks = client.get_inspector().listing(queues, STATUSES, 99).tasks
    results = {task.queue: client.get_task(task.id).result for task in tasks}
    assert {task.status for task in tasks} == {"complete"} and len(tasks) == 8
    assert results["trainings"]["epoch"] == 3
    assert (tmp_path / results["trainings"]["model"]).read_bytes() == b"weights" * 3
    assert results["sweeps"] == "rate=0.200"
    assert "rates  1 task in line again" in output and "rate=0.400 0.04" in output
    assert results["thumbnails"] == "s3://bucket/small/garden.jpg"
    assert "rates: 3 complete, 0 not" in output
    assert (tmp_path / "film.mp4").stat().st_size > 1000
    assert sum(not block.is_run for block in RECIPES) == 2


def test_the_index_lists_every_page_of_the_guide():
    assert sorted(GUIDE) == sorted(
        f"guide/{path.name}" for path in (ROOT / "docs/guide").glob("*.md")
    )


def test_few_blocks_are_not_run():
    assert len(BLOCKS) == TEXT.count("\n```") // 2
    assert {block.language for block in BLOCKS} <= {"sh", "python", "toml", "text"}
    assert sum(not block.is_run and block.language != "text" for block in BLOCKS) <= 4


def test_environment_variables_exist():
    source = "".join(path.read_text() for path in (ROOT / "blueque").rglob("*.py"))
    ours = {variable(table, row.key) for table in VARIABLES for row in TABLES[table]}
    for name in set(re.findall(r"BLUEQUE_[A-Z_]+|REDIS_URL", TEXT)) - ours:
        assert name in source


def _as_shell(block: Block) -> str:
    if block.text.startswith("blueque dev "):
        return BESIDE.format(dev=block.text.strip())
    if block.language == "sh":
        return block.text
    program = "python -" if block.file is None else f"cat >{block.file}"
    return f"{program} <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK\n"


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@contextlib.contextmanager
def _shell(
    script: str, directory: Path, environ: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield shell
    finally:
        # what a failed tour has left in the background
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
