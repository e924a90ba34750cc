"""Blueque and its peers: how each is installed, how its workers are started, and what a reader
should know about it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.venvs import ROOT, python_of

QUEUE = "bench"
PROGRAM = sys.executable, "-m", "blueque.cli.listener"

Commands = list[list[str]]


class Place(NamedTuple):
    """Where workers run: the address of Redis, and a directory for their files."""

    url: str
    directory: Path


class System(NamedTuple):
    """One way to run tasks.

    key: of its environment, its driver `peers/drive_[key].py` and its rows.
    workers: (place, how many tasks at a time) -> the commands of its workers, for draining.
    idle_workers: the same for picking up, where that is another kind of worker; else `workers`, one
        at a time.
    package: whose version is shown. kind: what runs a task.
    checkout: of Blueque 2, the directory whose package `blueque` runs, in our environment.
    """

    key: str
    name: str
    package: str
    requirements: list[str]
    kind: str
    workers: Callable[[Place, int], Commands]
    idle_kind: str = ""
    idle_workers: Callable[[Place], Commands] | None = None
    bulk: str = "a loop"
    checkout: Path | None = None

    @property
    def python(self) -> str:
        return sys.executable if self.checkout else str(python_of(self.key))

    @property
    def driver(self) -> str:
        return str(
            ROOT / "bench" / "peers" / f"drive_{'blueque' if self.checkout else self.key}.py"
        )

    def idle(self, place: Place) -> Commands:
        return self.idle_workers(place) if self.idle_workers else self.workers(place, 1)


def listener(place: Place, slots: int, *queues: str, program: Sequence[str] = PROGRAM) -> list[str]:
    """Return the command of a blueque-listener. program: what starts it, else that of this
    checkout.
    """
    return [
        *program,
        *(queues or [QUEUE]),
        "--handler",
        "work:handle",
        "--slots",
        str(slots),
        "--redis-url",
        place.url,
        "--spool",
        str(place.directory / "spool"),
        "--on-term",
        "drain",
    ]


def _program(key: str, name: str) -> str:
    return str(python_of(key).parent / name)


SYSTEMS = [
    System(
        "blueque",
        "Blueque",
        "blueque",
        [],
        "a process per task, exit record synced to the disk",
        lambda place, count: [listener(place, count)],
        "a process per task, the next one forked ahead",
        bulk="`queue.enqueue_many`",
        checkout=ROOT,
    ),
    System(
        "blueque_1_0_0",
        "Blueque 1.0.0",
        "blueque",
        ["blueque==1.0.0", "redis>=5,<6"],
        "a process per task",
        lambda place, count: (
            [[str(python_of("blueque_1_0_0")), "-c", "import drive_blueque_1_0_0 as d; d.work()"]]
            * count
        ),
    ),
    System(
        "rq",
        "RQ",
        "rq",
        ["rq"],
        "a process per task",
        lambda place, count: (
            [[_program("rq", "rq"), "worker", QUEUE, "--quiet", "--url", place.url]] * count
        ),
        bulk="`queue.enqueue_many`, 1,000 at a time",
    ),
    System(
        "celery",
        "Celery",
        "celery",
        ["celery[redis]"],
        "a pool of processes",
        lambda place, count: [
            [
                _program("celery", "celery"),
                "-A",
                "drive_celery",
                "worker",
                "-P",
                "prefork",
                "-c",
                str(count),
                "-l",
                "ERROR",
            ]
        ],
        bulk="a loop over one producer",
    ),
    System(
        "dramatiq",
        "Dramatiq",
        "dramatiq",
        ["dramatiq[redis]"],
        "processes of one thread",
        lambda place, count: [
            [
                _program("dramatiq", "dramatiq"),
                "drive_dramatiq",
                "--processes",
                str(count),
                "--threads",
                "1",
            ]
        ],
    ),
    System(
        "huey",
        "Huey",
        "huey",
        ["huey[redis]"],
        "a pool of processes",
        lambda place, count: [_huey("process", count)],
        "a pool of threads",
        lambda place: [_huey("thread", 1)],
    ),
    System(
        "saq",
        "SAQ",
        "saq",
        ["saq[redis]", "typing_extensions"],
        "coroutines of one process",
        lambda place, count: [[str(python_of("saq")), "-m", "saq", "drive_saq.settings"]],
        bulk="100 calls at a time",
    ),
]


OURS = SYSTEMS[0]
REUSED = OURS._replace(
    key="reuse", workers=lambda place, count: [[*listener(place, count), "--reuse", "100"]]
)


def _huey(kind: str, count: int) -> list[str]:
    return [
        _program("huey", "huey_consumer"),
        "drive_huey.huey",
        "-k",
        kind,
        "-w",
        str(count),
        "-q",
    ]
