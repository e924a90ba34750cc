"""`blueque archive`: the program itself, on a real Redis."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import in_process
import pytest

pytest.importorskip("pyarrow")

from running import clean_environment
from shelves import NOON, QUEUE, fill, require_exact
from transactions import protocol

from blueque import archives
from blueque.model import keys
from blueque.protocol.archiving import BatchRef

PROGRAM = [sys.executable, "-m", "blueque.cli.main", "archive"]


@pytest.fixture
def environ(url, tmp_path):
    return clean_environment() | {
        "BLUEQUE_REDIS_URL": url,
        "HOME": str(tmp_path),
        "PYTHONPATH": os.getcwd(),
    }


@pytest.fixture
def run(environ):
    """Run the program without a terminal."""

    def run(*arguments, **more):
        return in_process.run(["archive", *map(str, arguments)], environ | more)

    return run


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def test_it_says_what_was_archived_and_deleted(run, cli, shelf):
    ids = fill(cli, 40)

    result = run(QUEUE, shelf)

    first, second = result.stdout.splitlines()
    assert (result.returncode, result.stderr) == (0, "")
    assert first.startswith(f"{QUEUE}  40 tasks archived in ") and first.endswith(
        "/s) and deleted from Redis"
    )
    assert second == f"in {shelf}"
    require_exact(cli, shelf, ids)
    assert run(QUEUE, shelf).stdout == f"{QUEUE}  nothing to archive\n"


def test_json_says_it_all(run, cli, shelf):
    fill(cli, 10)

    said = json.loads(run(QUEUE, shelf, "--json").stdout)

    assert {name: said[name] for name in said if name not in ("seconds", "batches")} == {
        "blueque": 2,
        "kind": "archive",
        "queue": QUEUE,
        "directory": str(shelf),
        "written": 10,
        "deleted": 10,
        "resumed": [],
    }
    assert len(said["batches"]) == 1 and said["seconds"] > 0


def test_age_and_states_choose_what_goes(run, cli, shelf):
    ids = fill(cli, 40)
    # not for a long time
    cli.hset(keys.task(ids[0]), mapping={"finished": str(4e9), "updated": str(4e9)})

    result = run(
        QUEUE, shelf, "--state", "complete", "--state", "failed", "--older-than", "1d", "--json"
    )

    statuses = archives.read(shelf, fields=["status", "task_id"])
    assert json.loads(result.stdout)["written"] == statuses.num_rows > 0
    assert {*statuses["status"].to_pylist()} <= {"complete", "failed"} and ids[0] not in statuses[
        "task_id"
    ].to_pylist()


def test_a_pattern_archives_one_queue_after_the_other(run, cli, shelf):
    fill(cli, 3)
    name = f"{QUEUE}-too"
    for task in ("a", "b"):
        cli.hset(
            keys.task(task),
            mapping={"status": "complete", "queue": name, "finished": NOON, "created": NOON},
        )
        cli.lpush(keys.complete(name), task)
    cli.zadd(keys.QUEUES, {name: 0, "elsewhere": 0})

    printed = run(f"{QUEUE}*", shelf, "--json").stdout

    told = [json.loads(one) for one in printed.replace("}\n{", "}\0{").split("\0")]
    assert [(one["queue"], one["written"], one["deleted"]) for one in told] == [
        (QUEUE, 3, 3),
        (name, 2, 2),
    ]
    assert not cli.exists(keys.complete(QUEUE)) and not cli.exists(keys.complete(name))
    assert run("x*", shelf).returncode == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["no such", "a"], 3, "no queue 'no such'"),
        ([QUEUE], 2, "DIRECTORY"),
        ([QUEUE, "a", "--older-than", "soon"], 2, "soon"),
        ([QUEUE, "a", "--state", "pending"], 2, "pending"),
        ([QUEUE, "/proc/nothing"], 78, "/proc/nothing: cannot be written to"),
        ([QUEUE, "s3a://bucket"], 78, "Blueque was not tested on s3a:"),
    ],
)
def test_mistakes_end_it_with_a_sentence_and_a_code(run, cli, arguments, code, words):
    fill(cli, 1)

    result = run(*arguments)

    assert result.returncode == code and words in result.stderr
    assert len(result.stderr.splitlines()) <= 4
    assert cli.exists(keys.task("task-00000"))


def test_without_pyarrow_it_says_what_to_install(environ, cli, tmp_path, shelf):
    fill(cli, 1)
    (tmp_path / "pyarrow.py").write_text("raise ImportError('none here')")

    environ = environ | {"PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}
    result = subprocess.run(
        [*PROGRAM, QUEUE, str(shelf)], env=environ, capture_output=True, timeout=60, text=True
    )

    assert result.returncode == 78
    assert (
        "needs pyarrow, which is not installed; in the clone of Blueque: pip install '.[arrow]'"
        in result.stderr
    )
    assert len(result.stderr.splitlines()) == 1 and not shelf.exists()


def test_on_a_terminal_it_shows_how_far_it_is(environ, cli, shelf):
    fill(cli, 3000)
    ours, theirs = pty.openpty()

    with subprocess.Popen(
        [*PROGRAM, QUEUE, str(shelf)], env=environ, stdout=subprocess.PIPE, stderr=theirs
    ) as program:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # it has closed its end
            pass
        assert program.wait(30) == 0
    os.close(ours)

    assert b" of 3,000 written, " in shown and b" of 3,000 deleted from Redis, " in shown
    assert shown.endswith(b"\r\x1b[K")


def test_ctrl_c_stops_it_and_the_next_run_goes_on(environ, run, cli, redis, shelf):
    """The batch of another is open, so it waits: a moment that is easy to meet."""
    ids = fill(cli, 10)
    from blueque.archives import opening

    place = {"directory": str(shelf), "archive": opening.create(shelf).identity}
    protocol.claim_batch(
        redis, BatchRef(QUEUE, "b-1", "w"), {"by": "ann@host", "pid": os.getpid()}, place, NOON
    )

    with subprocess.Popen(
        [*PROGRAM, QUEUE, str(shelf)], env=environ, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stderr is not None
        waiting = program.stderr.readline()
        program.send_signal(signal.SIGINT)
        rest = program.stderr.read()
        assert program.wait(30) == 130
    assert (
        waiting == f"Waiting for another archiver of this queue: ann@host, process {os.getpid()}.\n"
    )
    assert rest == "Stopped. Nothing is lost: the next run continues.\n"

    protocol.leave_batch(redis, BatchRef(QUEUE, "b-1", "w"))
    result = run(QUEUE, shelf)
    assert result.stderr == "It finished an interrupted run first.\n"
    require_exact(cli, shelf, ids)


def test_what_others_change_meanwhile_is_counted(cli, url, shelf, capsys):
    from blueque.cli.verbs import archive as verb

    done = archives.Archived(QUEUE, str(shelf), ("b",), (), 10, 8, 2.0)
    verb._print_text(done)

    assert (
        "8 deleted from Redis, 2 changed or deleted by others meanwhile" in capsys.readouterr().out
    )
