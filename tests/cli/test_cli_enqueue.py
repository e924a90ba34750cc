"""`blueque enqueue` with many lines, keys, priorities and needs: the program itself, on a real
Redis.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

import in_process
import pytest
from click.testing import CliRunner
from faults import Fault
from running import clean_environment
from transactions import protocol

from blueque.cli import input_lines
from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.model import ids as task_id
from blueque.model import keys

PROGRAM = [sys.executable, "-m", "blueque.cli.main", "enqueue", "video"]


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

    def run(*arguments, stdin="", **more):
        return in_process.run(["enqueue", "video", *arguments], environ | more, stdin)

    return run


@pytest.fixture
def start(environ):
    """Start the program with pipes; it is ended after the test."""
    started = []

    def start(*arguments, **how):
        pipes = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        } | how
        program = subprocess.Popen([*PROGRAM, *arguments], env=environ, **pipes)
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
        program.wait(30)
        for pipe in (program.stdin, program.stdout, program.stderr):
            if pipe is not None:
                pipe.close()


def line(cli, name="0"):
    """Return the ids in a line of the queue video, the one that runs next first."""
    return cli.lrange(keys.line("video", name), 0, -1)[::-1]


def test_thousands_of_lines_are_enqueued_in_their_order_and_their_ids_printed(run, cli):
    result = run("--lines", "--text", stdin="".join(f"line {n}\n" for n in range(2500)))

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == line(cli)
    assert [cli.hget(keys.task(task), "parameters") for task in line(cli)] == [
        f"line {n}" for n in range(2500)
    ]


def test_a_line_that_comes_alone_is_not_kept_waiting_for_others(start, cli):
    program = start("--lines", "--text")

    for count in (1, 2):
        program.stdin.write(b"slow\n")
        program.stdin.flush()
        # comes while standard input is still open
        task = program.stdout.readline().decode().strip()
        assert line(cli)[count - 1 :] == [task]
    program.stdin.write(b"without an end")
    program.stdin.close()

    assert (
        cli.hget(keys.task(program.stdout.readline().decode().strip()), "parameters")
        == "without an end"
    )
    assert program.wait(30) == 0


def test_a_line_in_pieces_is_one_line(start, cli):
    program = start("--lines", "--text")
    for piece in (b"one", b" and", b" the same\nand", b" another\n"):
        program.stdin.write(piece)
        program.stdin.flush()
        time.sleep(0.05)
    program.stdin.close()

    assert program.wait(30) == 0
    assert [cli.hget(keys.task(task), "parameters") for task in line(cli)] == [
        "one and the same",
        "and another",
    ]


def test_a_steady_trickle_is_not_held_until_it_ends(start, cli):
    program = start("--lines", "--text")
    deadline = time.monotonic() + 20
    while not line(cli):  # a line every 0.1 s: it is never silent for long
        assert time.monotonic() < deadline
        program.stdin.write(b"drop\n")
        program.stdin.flush()
        time.sleep(0.1)
    program.stdin.close()

    assert program.wait(30) == 0


def test_a_file_may_be_a_pipe(run, cli, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"printf '1\n\n2' >{tmp_path}/pipe"]):
        result = run("--lines", f"@{tmp_path}/pipe")

    assert (result.returncode, result.stdout.split()) == (0, line(cli))
    assert [cli.hget(keys.task(task), "parameters") for task in line(cli)] == ["1", "2"]


def test_two_programs_that_enqueue_the_same_keys_at_once_make_each_task_once(start, cli):
    lines = "".join(f'{{"name": "{n}"}}\n' for n in range(2000)).encode()
    programs = [start("--lines", "--key-field", "name") for _ in range(2)]
    for program in programs:
        program.stdin.write(lines)  # 30 kB: a pipe takes that
        program.stdin.flush()
    said = [program.communicate(timeout=60)[0].decode().split() for program in programs]

    assert said == [[task_id.id_of_key("video", str(n)) for n in range(2000)]] * 2
    assert sorted(line(cli)) == sorted({*said[0]})


def test_a_reader_that_goes_away_is_told_how_far_it_got(start, cli):
    program = start("--lines", "--text")
    program.stdout.close()
    program.stdin.write(b"a line\n" * 10)
    program.stdin.close()
    stderr = program.stderr.read().decode()

    assert program.wait(30) == 141
    assert len(line(cli)) == 10
    assert stderr == "10 enqueued, then it stopped: the output was closed\n"


def test_a_server_that_goes_away_is_told_with_how_far_it_got_and_what_is_unknown(
    run, proxy, cli, tmp_path
):
    (tmp_path / "lines").write_text("x\n" * 1500)
    proxy.arm(Fault.CUT_AFTER, 2, having=b"EXEC\r\n")  # the first asks for the right to MULTI

    result = run("--lines", "--text", f"@{tmp_path}/lines", BLUEQUE_REDIS_URL=proxy.url)

    first, second, third = result.stderr.splitlines()
    assert (result.returncode, result.stdout, len(line(cli))) == (69, "", 1000)
    assert first == "0 enqueued, then it stopped:"
    assert "batch 0, of 1000 tasks from position 0 on, may or may not be there" in second
    assert third == f"When Redis is back, see: blueque show {line(cli)[0]}"


def test_lines_may_be_scheduled(run, cli):
    result = run("--lines", "--at", "4000000000", stdin="1\n2\n3\n")

    assert len(result.stdout.split()) == 3
    assert {*result.stdout.split()} == {*cli.zrange(keys.scheduled("video"), 0, -1)}


def on_terminal(environ, arguments, stdin, has_output):
    """Run the program with its standard error on a terminal, and its output too if it has one;
    return what is shown.
    """
    ours, theirs = pty.openpty()
    output = theirs if has_output else subprocess.DEVNULL
    program = subprocess.Popen(
        [*PROGRAM, *arguments], env=environ, stdin=subprocess.PIPE, stdout=output, stderr=theirs
    )
    os.close(theirs)
    program.stdin.write(stdin)
    program.stdin.close()
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert program.wait(30) == 0
    return shown.decode()


def test_progress_is_shown_where_the_ids_do_not_go(environ):
    shown = on_terminal(environ, ["--lines", "--text"], b"x\n" * 3000, has_output=False)

    assert "3,000 enqueued, " in shown and shown.endswith("/s\x1b[K\r\n")


def test_no_progress_stands_between_ids(environ, cli):
    shown = on_terminal(environ, ["--lines", "--text"], b"x\n" * 3, has_output=True)

    assert shown.split() == line(cli)


# Keys


def test_a_key_that_has_a_task_already_is_said_with_what_that_is(run, redis):
    new, old = run("1", "--key", "a"), run("2", "--key", "a")
    protocol.cancel(redis, "video", new.stdout.strip(), "ada", None, time.time())
    cancelled = run("2", "--key", "a")
    protocol.delete(redis, "video", new.stdout.strip())

    assert (new.stderr, old.stderr) == ("", "Not new: the task with this key is pending\n")
    assert (
        cancelled.stderr
        == f"Not new: the task with this key is cancelled; to run it again: blueque requeue {new.stdout}"
    )
    assert "was deleted, and the key is still in use" in run("2", "--key", "a").stderr


def rows_of(numbers):
    """Return the lines of a file with a key each."""
    return "".join(f'{{"name": "k{number}"}}\n' for number in numbers)


@pytest.mark.parametrize("group", [[], ["--group", "g"]])
def test_rows_that_repeat_a_key_are_counted_also_in_another_batch(run, cli, group):
    rows = rows_of([*range(249), 3, *range(249, 499)])

    first = run("--lines", "--key-field", "name", *group, stdin=rows)
    again = run("--lines", "--key-field", "name", *group, stdin=rows_of([1, 1, 2, 2]))

    assert first.stderr == "500 rows, 499 tasks, 499 of them new: 1 row repeats a key\n"
    assert again.stderr == "4 rows, 2 tasks, 0 of them new: 2 rows repeat a key\n"
    assert len(line(cli)) == 499


def test_the_keys_of_more_rows_than_are_remembered_are_not_compared(run, monkeypatch):
    monkeypatch.setattr(input_lines, "MOST_COMPARED", 3)

    told = run("--lines", "--key-field", "name", stdin=rows_of([1, 1, 2, 3])).stderr

    assert told == "4 tasks, 3 of them new\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (
            ["--lines", "--key-field", "n"],
            '{"n": 7.5}\n',
            "the field 'n' holds a number with a fraction; a key",
        ),
        (["--lines", "--key-field", "n"], "{}\n", "no field 'n'"),
        (["--lines"], "NaN\n", "line 1"),
        (["NaN"], "", "JSON does not have"),
        (["--text", "-"], "1" * 1_050_000, "parameters take 1,050,000 bytes"),
        (["--lines", "@nofile"], "", "cannot read 'nofile'"),
    ],
)
def test_a_mistake_is_given_no_advice_for_another(run, arguments, stdin, said):
    result = run(*arguments, stdin=stdin)

    assert result.returncode == 2 and said in result.stderr
    assert "--text" not in result.stderr and "@" not in result.stderr


def test_what_is_no_json_and_a_string_with_an_at_sign_are_given_their_advice(run):
    assert "--text" in run("--lines", stdin="hello\n").stderr
    assert "--text" in run("@nofile").stderr


@pytest.mark.parametrize(
    "bad", ['{"other": "a"}', '["a"]', '{"name": 7.0}', '{"name": true}', '{"name": ""}']
)
def test_a_line_without_a_good_key_is_named_and_those_before_it_are_enqueued(run, cli, bad):
    result = run("--lines", "--key-field", "name", stdin=f'{{"name": "a"}}\n\n{bad}\n')

    assert (result.returncode, len(line(cli))) == (2, 1)
    assert "line 3" in result.stderr and "1 enqueued" in result.stderr


def test_a_whole_number_as_key_is_the_same_as_its_digits(run, cli):
    first = run("--lines", "--key-field", "n", stdin='{"n": 7}\n{"n": -8}\n').stdout.split()

    assert run("--lines", "--key-field", "n", stdin='{"n": "7"}\n').stdout.split() == first[:1]
    assert run("null", "--key", "-8").stdout.split() == first[1:]
    assert [cli.hget(f"blueque_task_{task}", "key") for task in first] == ["7", "-8"]


# Where it waits


def test_priority_resources_and_lock_say_where_a_task_waits(run, cli):
    options = [
        "--priority",
        "-5",
        "--resource",
        "gpu=1",
        "--resource",
        "memory=8GiB",
        "--lock",
        "licence=3",
    ]

    one = run("1", *options).stdout.split()
    two = run("--lines", *options, stdin="2\n3\n").stdout.split()

    assert line(cli, "-5,gpu=1,memory=8589934592,lock:licence=3") == one + two


def test_a_lock_may_have_any_name(run, cli):
    (task,) = run("1", "--lock", "customer=seventeen=1").stdout.split()

    assert cli.hget(keys.task(task), "needs") == "lock:customer%3Dseventeen=1"


@pytest.mark.parametrize(
    "options",
    [
        ["1", "--priority", "101"],
        ["1", "--priority", "high"],
        ["1", "--resource", "gpu"],
        ["1", "--resource", "GPU=1"],
        ["1", "--resource", "gpu=-1"],
        ["1", "--lock", ""],
        ["1", "--lock", "a=0"],
        ["1", "--key", ""],
        ["--lines", "--key", "a"],
        ["1", "--key-field", "name"],
        ["--lines", "--priority", "101"],
        ["1", "--resource", "gpu=1", "--resource", "gpu=2"],
        ["1", "--resource", "gpu=1.5"],
        ["1", "--lock", "a=b"],
        ["1", "--lock", "a="],
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(run, state, options):
    result = run(*options, stdin="1\n")

    assert (result.returncode, result.stdout, state()) == (2, "", {})
    assert len(result.stderr.splitlines()) <= 3 and "then it stopped" not in result.stderr


def test_a_person_is_told_when_nobody_serves_the_queue_and_a_script_is_not(url, redis, monkeypatch):
    def said(*arguments):
        return (
            CliRunner()
            .invoke(
                blueque, ["enqueue", *arguments], obj=Invocation(url=url), catch_exceptions=False
            )
            .stderr
        )

    assert said("vidoe", "1") == ""
    monkeypatch.setattr("blueque.cli.verbs.enqueue._is_watched", lambda: True)
    command = "blueque-listener vidoe --module MODULE"
    assert (
        said("vidoe", "1") == f"No listener serves vidoe, so the task waits. Start one: {command}\n"
    )
    monkeypatch.setenv("BLUEQUE_HANDLER", "tasks:cut")
    assert said("vidoe", "1").endswith(" Start one: blueque-listener vidoe\n")
    assert said("vidoe", "1", "--in", "2h") == ""
    protocol.register(redis, "video", "host_1", "i", {}, time.time())
    assert said("video", "1") == ""
    assert "so the task waits. Did you mean video? Start" in said("vidoe", "1")
    redis.read(("ZADD", "blueque_nodes_video", time.time() - 3600, "host_1"))
    assert "No listener serves video, so the task waits. Start" in said("video", "1")


def test_run_says_at_once_that_nobody_serves_the_queue(url, monkeypatch):
    monkeypatch.setattr(
        "blueque.cli.verbs.run._follow", lambda client, task_id, output: client.get_task(task_id)
    )

    said = (
        CliRunner()
        .invoke(blueque, ["run", "vidoe", "1"], obj=Invocation(url=url), catch_exceptions=False)
        .stderr
    )

    assert said.splitlines()[1] == (
        "No listener serves vidoe, so the task waits."
        " Start one: blueque-listener vidoe --module MODULE"
    )
