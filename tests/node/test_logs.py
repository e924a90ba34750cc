"""What a task prints and how far it is: seen in Redis while it runs, and with `blueque logs`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import forked
import pytest
from click.testing import CliRunner
from running import Programs, outcome, patched, until
from transactions import protocol

from blueque.cli.log_printer import Printer
from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.cli.verbs.logs import _look, logs
from blueque.errors import NotOwner
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.model.retry import Retry
from blueque.model.units import Timing
from blueque.node.reporter import Reporter
from blueque.queries import task_log
from blueque.queries.task_log import LogLine
from blueque.spool.attempt import Attempt
from blueque.spool.outcome_record import last_words
from blueque.system import process
from blueque.system.outage import Outage

WORK = """
    import os, sys, time
    from pathlib import Path

    def run(task):
        for word in task.parameters.split(", "):
            say(task, word)

    def say(task, word):
        if word.startswith("go"):
            while not Path(word).exists():
                time.sleep(0.005)
        elif word == "flood":
            print("\\n".join(map(str, range(100_000))))
        elif word == "bar":
            for done in range(101):
                print(f"\\r{done}%", end="", file=sys.stderr)
            print(file=sys.stderr)
        elif word.startswith("bars "):
            begin = time.monotonic()
            while (done := time.monotonic() - begin) < float(word[5:]):
                print(f"\\r{done:.0f}%|#| {10 * done:.0f}/100 [", end="", file=sys.stderr, flush=True)
                time.sleep(0.05)
            print("\\r40%|#| 40/100 [", end="", file=sys.stderr, flush=True)
            time.sleep(1000)
        elif word == "tqdm":
            print("\\r 44%|\\rencoding:  45%|####5  | 45/100 [00:10<00:12,  4.5it/s]", end="", file=sys.stderr, flush=True)
        elif word == "fail":
            raise ValueError("as it was told")
        elif word == "die":
            os.kill(os.getpid(), 9)
        elif word.startswith("at "):
            task.progress(float(word[3:]))
        elif word.startswith("err "):
            print(word[4:], file=sys.stderr)
        elif word == "begin":
            print("no end", end="")
        else:
            print(word)
"""


# Who looks seldom looks often here: what a test waits for comes sooner, and in the same order.
QUICK = patched({"node.reporter.PACE": 0.05, "cli.verbs.logs.PACE": 0.05})


@pytest.fixture(autouse=True)
def _quick(environ):
    environ.update(QUICK)


@pytest.fixture
def work(url, tmp_path):
    with Programs(url, tmp_path, QUICK) as programs:
        programs.write(WORK)
        yield programs


@pytest.fixture
def processor(client):
    """Return that of a task which a listener has started."""
    client.get_queue("work").enqueue("p")
    listener = client.get_listener("work")
    listener.register(Timing())
    processor = client.get_processor(listener.take())
    processor.start(77)
    return processor


@pytest.fixture
def queue(work):
    return work.client.get_queue("work")


def go(programs, word="go"):
    (programs.directory / word).touch()


def shown(client, task, number=None):
    """Return the lines that Redis has, once there are so many."""

    def lines():
        found = [line.text for line in client.get_log(task)[0]]
        return found if number is None or len(found) >= number else None

    return until(lines, what=f"{number} lines")


def test_lines_and_progress_are_seen_while_the_task_runs(work, queue):
    work.listener("work:run")
    task = queue.enqueue("hello, err oh, bar, at 0.4, go, bye, at 0.9, begin")

    expected = [("stdout", "hello"), ("stderr", "oh"), ("stderr", "100%")]
    lines = until(
        lambda: len(found := work.client.get_log(task)[0]) >= len(expected) and found, what="a log"
    )
    assert [(line.stream, line.text) for line in lines] == expected
    running = until(
        lambda: (seen := work.client.get_task(task)).fields.get("progress") and seen,
        what="progress",
    )
    assert (running.status, running.fields["progress"]) == ("started", "0.4")
    assert running.started <= lines[0].at <= running.updated + 1
    go(work)
    done = outcome(work.client, task)
    assert shown(work.client, task)[3:] == ["bye", "no end"]  # all is there when the end is
    assert (done.status, done.fields["progress"]) == ("complete", "0.9")


def test_the_bar_of_a_task_that_tells_nothing_is_its_progress(work, queue):
    work.listener("work:run")
    task = queue.enqueue("tqdm, go, at 0.5, go 2")

    until(
        lambda: work.client.get_task(task).fields.get("progress") == "45/100 encoding",
        what="the bar",
    )
    go(work)
    until(lambda: work.client.get_task(task).fields.get("progress") == "0.5", what="its own word")
    go(work, "go 2")
    outcome(work.client, task)


def test_a_bar_that_moves_keeps_a_task_from_its_stall_limit_and_one_that_stands_still_does_not(
    work, queue
):
    work.listener("work:run")
    task = queue.enqueue("bars 1.6", stall_limit=1)

    failed = outcome(work.client, task)
    assert (failed.status, failed.error_type) == ("failed", "stall_limit")
    assert failed.finished - failed.started > 2.2  # of which 1.6 were those of the moving bar
    assert failed.fields["progress"] == "40/100"


@pytest.fixture
def reporter(client, processor, tmp_path):
    """Return one for an attempt whose task prints what a test writes; it looks whenever it may."""
    reporter = Reporter(client, Attempt(str(tmp_path), ""))
    reporter.next_step = 0.0
    return reporter


def tell(directory, *words):
    """Run `blueque progress` as a script of a task does that has this directory."""
    runner = CliRunner(env={"BLUEQUE_TASK_DIR": str(directory)})
    return runner.invoke(blueque, ["progress", *words], obj=Invocation())


def look(reporter, processor, written):
    """Return what it says of the bars once so much more is printed."""
    with open(f"{reporter._attempt.path}/stderr", "ab") as file:
        file.write(written.encode())
    reporter.next_step = 0.0
    return reporter.step(processor.task)


def test_of_several_bars_the_outermost_is_the_progress_and_each_that_moves_is_a_sign_of_life(
    client, reporter, processor
):
    both = (
        "\repochs:   0%|    | 0/2 [00:00<?, ?it/s]\n\rbatch:   0%|    | 0/9 [00:00<?, ?it/s]\x1b[A"
    )
    first = look(reporter, processor, both)
    assert client.get_task(processor.task.id).progress == "0/2 epochs"
    second = look(reporter, processor, "\n\rbatch:  11%|#   | 1/9 [00:01<00:08,  1.00it/s]\x1b[A")
    assert (
        look(reporter, processor, "\n\rbatch:  11%|#   | 1/9 [00:02<00:16,  2.00s/it]\x1b[A")
        == second
        != first
    )
    look(reporter, processor, "\repochs:  50%|##  | 1/2 [00:09<00:09,  9.00s/it]")
    assert client.get_task(processor.task.id).progress == "1/2 epochs"


@pytest.mark.parametrize(
    ("before", "last", "told"),
    [
        (
            "\r97%|#########7| 97/100 [00:10<00:00,  9.0it/s]",
            "\r100%|##########| 100/100 [00:10<00:00,  9.0it/s]\n",
            "100/100",
        ),
        ("\r97it [00:10,  9.7it/s]", "\r100it [00:10,  9.9it/s]\nuploading\n", "100 it"),
        (
            "\repochs:  50%|##  | 1/2 [00:01<00:01,  1.00it/s]\n\rbatch:  50%|##  | 4/8 [00:00<00:01,  1.00it/s]\x1b[A",
            "\repochs: 100%|####| 2/2 [00:01<00:00,  1.00it/s]\n",
            "2/2 epochs",
        ),
    ],
)
def test_what_a_bar_has_shown_last_is_told_when_it_has_ended(
    client, reporter, processor, before, last, told
):
    begun = look(reporter, processor, before)
    assert look(reporter, processor, last) != begun
    assert client.get_task(processor.task.id).progress == told
    reporter.finish(processor.task)
    assert client.get_task(processor.task.id).progress == told


def test_a_bar_that_is_drawn_and_ended_before_anybody_has_looked_is_told_at_the_end(
    client, reporter, processor, tmp_path
):
    (tmp_path / "stderr").write_text("\r100%|####| 3/3 [00:00<00:00,  9.0it/s]\n")
    reporter.finish(processor.task)
    assert client.get_task(processor.task.id).progress == "3/3"


def test_the_last_words_of_a_task_that_fails_are_there_when_its_end_is(work, queue):
    work.listener("work:run")
    task = queue.enqueue("farewell, fail")

    assert outcome(work.client, task).status == "failed"
    assert shown(work.client, task) == ["farewell"]


def test_the_log_of_a_task_that_did_not_end_by_itself_says_last_how_it_did(work, queue, run):
    work.listener("work:run")
    task = queue.enqueue("farewell, die")

    assert outcome(work.client, task).status == "failed"
    farewell, last = work.client.get_log(task)[0]
    assert (farewell.text, last.number, last.stream) == ("farewell", 2, "blueque")
    assert re.fullmatch(r"-- blueque: killed by SIGKILL, peak memory [\d.]+ MiB --", last.text), (
        last.text
    )
    first, said = run("logs", "--all", task).stdout.splitlines()
    assert first == "farewell" and said.startswith("-- blueque: killed by SIGKILL")
    assert said.endswith(" --")


PEAK = {"memory_peak": 3 * 2**29}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (
            {"error": "killed by SIGSEGV (core dumped)", "error_type": "signal"},
            "killed by SIGSEGV (core dumped)",
        ),
        (
            {"error": "killed by SIGKILL", "error_type": "signal"} | PEAK,
            "killed by SIGKILL, peak memory 1.5 GiB",
        ),
        (
            {"error": "exit code 3:\nno such file", "error_type": "exit", "exit_code": 3},
            "exit code 3",
        ),
        (
            {
                "error": "time_limit of 2 s exceeded after 2.1 s: ValueError: \x1b[2Jx",
                "error_type": "time_limit",
            },
            "time_limit of 2 s exceeded after 2.1 s: ValueError: x",
        ),
        (
            {"error": "cancelled: killed by SIGTERM", "error_type": "cancelled"},
            "cancelled: killed by SIGTERM",
        ),
        (None, "its process is gone, and how far it got is not known"),
        ({"error": "ValueError: x", "error_type": "ValueError", "traceback": "..."} | PEAK, None),
        ({"error": "handed back", "error_type": "HandBack", "handed_back": True}, None),
        ({"status": "complete", "result": "1"}, None),
    ],
)
def test_what_did_not_end_by_itself_has_last_words(record, says):
    said = last_words(record if record is None else {"status": "failed"} | record)
    assert said == ("" if says is None else f"-- blueque: {says} --")


def test_the_last_words_come_once_whoever_says_them_and_only_when_all_is_over(
    client, reporter, processor, tmp_path
):
    task = processor.task
    look(reporter, processor, "one\ntwo")
    reporter.finish(task, "-- blueque: killed --")
    reporter.finish(task, "-- blueque: killed --")
    other = Reporter(client, Attempt(str(tmp_path), ""))
    other.finish(task, "-- blueque: killed --")

    assert [line[2:3] + line[4:] for line in client.get_log(task.id)[0]] == [
        (1, "stderr", "one"),
        (2, "stderr", "two"),
        (3, "blueque", "-- blueque: killed --"),
    ]


def test_each_attempt_has_its_lines_and_a_short_task_that_prints_nothing_has_no_log(
    work, queue, cli
):
    work.listener("work:run", "--beat", "0.2s", "--lease", "0.6s", "--lost-after", "30s")
    task = queue.enqueue("one, two, fail", retry=Retry(max=1, backoff=0.01))
    assert outcome(work.client, task).attempt == 2
    silent = queue.enqueue("at 1")
    outcome(work.client, silent)

    lines, _ = work.client.get_log(task)
    assert [(line.attempt, line.number, line.text) for line in lines] == [
        (1, 1, "one"),
        (1, 2, "two"),
        (2, 1, "one"),
        (2, 2, "two"),
    ]
    assert cli.xlen(keys.log_head(task)) == 2
    assert not cli.exists(keys.log(silent), keys.log_head(silent))


def test_once_an_attempt_is_over_its_log_takes_no_more_memory_than_its_lines(work, queue, cli):
    work.listener("work:run")
    short, long = queue.enqueue("one, two"), queue.enqueue("one, go")

    def memory(task):
        return [cli.memory_usage(key) for key in (keys.log(task), keys.log_head(task))]

    shown(work.client, long, 1)
    before = memory(long)
    go(work)
    outcome(work.client, long)
    assert shown(work.client, long) == ["one"]  # all was told before the end
    assert all(now < 1200 < 4096 < then for now, then in zip(memory(long), before, strict=True))
    assert shown(work.client, outcome(work.client, short).id) == ["one", "two"]
    assert all(now < 1200 for now in memory(short))
    assert cli.ttl(keys.log(long)) > 86400 and cli.ttl(keys.log_head(long)) > 86400
    assert not cli.keys("*packing*")


def test_of_a_flood_redis_has_the_first_and_the_last_lines(work, queue, cli):
    work.listener("work:run")
    task = queue.enqueue("flood")
    outcome(work.client, task)

    lines = shown(work.client, task)
    assert cli.xlen(keys.log(task)) == 1000
    assert lines[:3] == ["0", "1", "2"] and lines[-1000:] == [
        str(number) for number in range(99_000, 100_000)
    ]
    assert len(lines) - 1000 == 2**16 / 16  # short ones take 16 bytes of the 64 KB
    assert (cli.ttl(keys.log(task)) > 86400) and (cli.ttl(keys.log_head(task)) > 86400)


def test_an_adopted_task_has_each_line_once(work, queue):
    first = work.listener("work:run")
    task = queue.enqueue("one, go 1, two, go 2, three")
    shown(work.client, task, 1)
    slots = first.slots()
    first.stop(signal.SIGKILL)
    for slot in slots:
        os.kill(slot, signal.SIGKILL)
    go(work, "go 1")
    work.listener("work:run")
    shown(work.client, task, 2)
    go(work, "go 2")

    assert outcome(work.client, task).status == "complete"
    assert [line.number for line in work.client.get_log(task)[0]] == [1, 2, 3]
    assert shown(work.client, task) == ["one", "two", "three"]


def test_what_was_printed_while_redis_stood_still_comes_later_and_the_task_does_not_notice(
    own_server, tmp_path
):
    with Programs(own_server.url, tmp_path, QUICK) as work:
        work.write(WORK)
        work.listener("work:run")
        task = work.client.get_queue("work").enqueue("one, go, two")
        shown(work.client, task, 1)
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            go(work)
            until((tmp_path / "spool" / f"{task}@1" / "exit").exists, what="the end of the task")
        finally:
            os.kill(own_server.pid, signal.SIGCONT)

        assert outcome(work.client, task).status == "complete"
        assert shown(work.client, task) == ["one", "two"]


def test_the_log_goes_with_its_task(work, queue, cli):
    work.listener("work:run")
    task = queue.enqueue("one")
    outcome(work.client, task)
    assert cli.exists(keys.log(task), keys.log_head(task)) == 2

    queue.delete_task(work.client.get_task(task))
    assert cli.keys(f"*{task}*") == []


def test_the_end_is_recorded_even_if_redis_takes_nothing_of_what_the_task_says(work, queue, cli):
    """A key of another kind stands for whatever Redis may have against it."""
    work.listener("work:run")
    task = queue.enqueue("one, go, two")
    shown(work.client, task, 1)
    cli.delete(keys.log(task))
    cli.set(keys.log(task), "something else")
    go(work)

    assert outcome(work.client, task).status == "complete"
    assert cli.get(keys.log(task)) == "something else"


def test_scripts_that_run_side_by_side_may_all_tell_how_far_it_is(run, tmp_path):
    script = "import sys; sys.argv[1:] = ['progress', sys.argv[1]]; from blueque.cli.main import main; main()"
    variables = {**os.environ, "BLUEQUE_TASK_DIR": str(tmp_path)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(number)], env=variables, stderr=subprocess.PIPE
        )
        for number in range(6)
    ]
    assert [(program.communicate(timeout=30)[1], program.returncode) for program in running] == [
        (b"", 0)
    ] * 6
    assert os.listdir(tmp_path) == ["progress"]


def test_what_is_requeued_is_followed_again(work, queue, begin):
    work.listener("work:run")
    task = queue.enqueue("a, go 1, fail")
    following = begin("logs", "-f", "-q", "work")
    assert following.stdout.readline() == f"{task} | a\n"
    go(work, "go 1")
    until(lambda: work.client.get_task(task).status == "failed", what="its failure")
    (work.directory / "go 1").unlink()
    queue.requeue(task)
    assert following.stdout.readline() == f"{task} | a\n"
    go(work, "go 1")


def test_an_answer_that_was_lost_doubles_no_line_and_a_stranger_adds_none(client, processor, cli):
    task, node = processor.task.id, processor.task.node
    lines = [Line(number, 5.0, "stdout", f"line {number}", number == 1) for number in (1, 2)]
    processor.log(lines)
    processor.log([*lines, Line(3, 6.0, "stderr", "line 3")])

    assert [line[:4] for line in client.get_log(task)[0]] == [
        (task, 1, 1, 5.0),
        (task, 1, 2, 5.0),
        (task, 1, 3, 6.0),
    ]
    assert cli.xlen(keys.log_head(task)) == 1
    with pytest.raises(NotOwner):
        protocol.log(client.connections, AttemptRef("work", task, "another", node), 1, lines)


def test_following_tells_what_is_new_and_how_the_tasks_stand(client, processor):
    task, other = processor.task.id, client.get_queue("work").enqueue("q")
    processor.log([Line(1, 5.0, "stdout", "one")])
    processor.progress("0.5 half")
    looked = task_log.follow(
        client.connections, [task_log.Place(task), task_log.Place(other), task_log.Place("gone")]
    )
    lines, places, statuses, progress = looked

    assert [line.text for line in lines] == ["one"]
    assert statuses == {task: "started", other: "pending", "gone": None}
    assert progress == {task: "0.5 half", other: None, "gone": None}
    processor.log([Line(2, 5.0, "stdout", "two")])
    assert [line.text for line in task_log.follow(client.connections, places)[0]] == ["two"]


# blueque logs


def test_logs_shows_what_redis_has_and_says_where_lines_are_missing(work, queue, run, environ):
    work.listener("work:run")
    task = queue.enqueue("flood, go, err oh")
    until(lambda: run("logs", "-n", "1", task).stdout == "99999\n", what="the end of the flood")
    work.write("", "go")
    outcome(work.client, task)

    result = run("logs", task[:8])
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "0" and lines[-2:] == ["99999", "oh"]
    (mark,) = (line for line in lines if line.startswith("... "))
    shown = mark.removeprefix("... (").removesuffix(" lines left out)")
    missing = int(shown.replace(",", ""))
    assert len(lines) - 1 + missing == 100_001
    assert int(lines[lines.index(mark) + 1]) == int(lines[lines.index(mark) - 1]) + 1 + missing
    says = f"{shown} lines left out; on its host, to see everything: blueque logs --all"
    assert result.stderr == f"{says} {task}\n"
    assert run("logs", "-n", "2", task).stdout == "99999\noh\n"
    assert run("logs", "--all", task).stdout.splitlines() == [*map(str, range(100_000)), "oh"]
    assert run("logs", "--all", "-n", "3", task).stdout == "99998\n99999\noh\n"
    assert run("logs", "--all", "-n", "0", task).stdout == ""
    on_terminal = forked.on_terminal(["logs", task], environ)
    assert on_terminal[:1] == ["99801"] and len(on_terminal) == 201
    assert (
        on_terminal[-1]
        == f"{len(lines) - 201:,} lines before these: blueque logs -n {len(lines) - 1} {task[:8]}"
    )
    as_json = [
        json.loads(line) for line in run("logs", "-n", "2", "--json", task).stdout.splitlines()
    ]
    assert [(line["kind"], line["line"], line["stream"], line["text"]) for line in as_json] == [
        ("log", 100_000, "stdout", "99999"),
        ("log", 100_001, "stderr", "oh"),
    ]
    assert as_json[0]["at"].startswith("20") and as_json[0]["attempt"] == 1


def test_what_a_task_prints_does_nothing_to_a_terminal(work, queue, run):
    work.listener("work:run")
    task = queue.enqueue("\x1b[31mred\x1b[0m\x1b]0;title\x07\tand tabs")
    outcome(work.client, task)

    assert run("logs", task).stdout == "red\\x1b]0;title\\x07     and tabs\n"


def test_logs_follows_several_tasks_to_their_ends(work, queue, begin):
    work.listener("work:run", slots=2)
    one, two = queue.enqueue("a, go 1, b"), queue.enqueue("c, go 2, d, begin")
    following = begin("logs", "-f", "--times", one, two)
    seen = [following.stdout.readline() for _ in range(2)]
    go(work, "go 1")
    seen.append(following.stdout.readline())
    go(work, "go 2")
    seen += following.stdout.readlines()

    assert following.wait(30) == 0
    assert sorted((line.split(" | ")[0], line.split(" | ")[2]) for line in seen) == sorted(
        [(one, "a\n"), (one, "b\n"), (two, "c\n"), (two, "d\n"), (two, "no end\n")]
    )
    assert all(line.split(" | ")[1].endswith(" UTC") for line in seen)


def test_logs_follows_what_comes_in_a_queue(work, queue, begin):
    work.listener("work:run")
    first = queue.enqueue("a, go 1")
    until(lambda: work.client.get_task(first).status == "started", what="the start")
    following = begin("logs", "-f", "-q", "work")
    assert following.stdout.readline() == f"{first} | a\n"
    second = queue.enqueue("b, go 2, b again")
    go(work, "go 1")
    assert following.stdout.readline() == f"{second} | b\n"
    go(work, "go 2")
    assert following.stdout.readline() == f"{second} | b again\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "name the tasks: ID..., or --queue QUEUE"),
        (("abcd",), 3, "no task 'abcd'"),
        (("-q", "nowhere"), 3, "no queue 'nowhere'"),
        (("--all", "-f", "abcd"), 2, "--all needs one ID"),
    ],
)
def test_what_cannot_be_shown_is_refused(run, url, arguments, code, says):
    result = run("logs", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert says in result.stderr


def test_a_task_that_has_not_run_and_one_whose_files_are_elsewhere_say_so(client, cli, run):
    task = client.get_queue("work").enqueue("p")
    assert run("logs", task).stderr == f"{task}: has not run yet\n"
    its = {
        "attempt": "2",
        "files": "gpu-9:/var/spool/x/1",
        "status": "failed",
        "error_type": "lost",
    }
    cli.hset(keys.task(task), mapping={**its, "started": time.time() - 60})

    says = f"{task}: Redis has no line of attempt 2; everything it printed, if anything: gpu-9:/var/spool/x/1\n"
    before = f"To see the attempt before: blueque logs {task} --attempt 1\n"
    assert run("logs", task).stderr == says + before
    elsewhere = run("logs", "--all", task)
    assert (elsewhere.returncode, elsewhere.stdout) == (2, "")
    assert "the files of the task are on gpu-9" in elsewhere.stderr
    assert "/var/spool/x/1" in elsewhere.stderr


def test_a_task_that_printed_nothing_is_told_from_one_whose_log_is_not_there(client, cli, run):
    task = client.get_queue("work").enqueue("p")

    def says(**fields):
        cli.hset(
            keys.task(task),
            mapping={"status": "complete", "files": "gpu-9:/var/spool/x/1", **fields},
        )
        return run("logs", task).stderr.removeprefix(f"{task}: ").rstrip()

    where = (
        "Redis has no line of attempt 1; everything it printed, if anything: gpu-9:/var/spool/x/1"
    )
    assert says() == "it ran on a listener of 1.0.0, which keeps no output"
    assert says(attempt=1, started=time.time() - 60) == "attempt 1 has printed nothing"
    assert says(attempt=1, started=time.time() - 31 * 86400) == where
    assert says(attempt=1, started=time.time() - 60, status="started") == where


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ((), "No longer following; still running: blueque logs -f {task}\n"),
        (("-q", "work"), "No longer following; the tasks run on: blueque logs -f -q work\n"),
    ],
)
def test_who_stops_to_follow_is_told_that_the_task_runs_on(
    run, client, processor, monkeypatch, which, says
):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("blueque.queries.task_log.follow", stop)
    task = processor.task.id
    done = run("logs", "-f", *(which or (task,)))

    assert (done.returncode, done.stderr) == (130, says.format(task=task))


def test_all_of_an_earlier_attempt_is_read_where_that_was(client, cli, url, tmp_path):
    here, task = process.host_name(), client.get_queue("work").enqueue("p")
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stdout").write_text(f"attempt {number}\n")

    def read(number, **fields):
        cli.hset(
            keys.task(task), mapping={"attempt": "3", "files": "gpu-9:/var/spool/x/3", **fields}
        )
        return CliRunner().invoke(
            logs,
            ["--all", "--attempt", number, task],
            obj=Invocation(url=url),
            standalone_mode=False,
        )

    assert read("1", last_files=f"{here}:{tmp_path}/2").stdout == "attempt 1\n"
    assert read("2").stdout == "attempt 2\n"
    away = read("2", last_files="gpu-8:/srv/x/2").exception
    assert away.message == "the files of the task are on gpu-8" and "--attempt 2" in away.advice[0]
    assert "/srv/x/2" in away.advice[0]
    unknown = read("1").exception
    assert unknown.message == "the files of attempt 1 were not found"
    assert unknown.advice == (
        "Known files: attempt 3 in gpu-9:/var/spool/x/3, 2 in gpu-8:/srv/x/2",
    )


def test_a_bar_that_is_being_drawn_is_shown_behind_the_lines_as_what_is_now(
    run, reporter, processor
):
    task = processor.task.id
    look(
        reporter,
        processor,
        "begun\n\r 44%|####  | 44/100 [00:10<00:12]\r 45%|####  | 45/100 [00:10<00:12]",
    )

    shown = run("logs", task)
    assert (shown.returncode, shown.stdout) == (0, "begun\n")
    assert re.fullmatch(r"-- now: 45/100, 45 %, as of \S+ \S+ UTC --\n", shown.stderr), shown.stderr
    (line,) = run("logs", "--json", task).stdout.splitlines()
    assert json.loads(line)["text"] == "begun"
    processor.complete(1)
    assert run("logs", task).stderr == ""


def test_who_follows_on_a_terminal_sees_the_bar_move_below_the_lines(
    client, processor, monkeypatch, capsys
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("blueque.cli.progress_line.PAUSE", -1.0)
    task, printer = processor.task.id, Printer(False, False, False, False)
    places = [task_log.Place(task)]
    looks = (
        lambda: processor.progress("1/4"),
        lambda: processor.progress("2/4 \x1b[2Jparts"),
        lambda: processor.log([Line(1, 5.0, "stdout", "one")]),
    )
    for happen in looks:
        happen()
        places = _look(client, places, (), None, printer, {}, Outage("back"))
    printer.clear()

    seen = capsys.readouterr()
    assert seen.out == "one\n"
    assert seen.err.replace("\r", "").split("\x1b[K")[:3] == [
        "-- now: 1/4, 25 % --",
        "-- now: 2/4 parts, 50 % --",
        "",
    ]


def test_who_follows_is_told_where_another_attempt_begins(capsys):
    printer = Printer(False, False, False, False)

    printer.follow(
        [
            LogLine("t", attempt, number, 5.5, "stdout", "x")
            for attempt, number in ((1, 1), (1, 2), (2, 1))
        ]
    )

    assert capsys.readouterr() == ("x\nx\nx\n", "--- attempt 2 of t ---\n")


# blueque progress


def test_a_script_tells_how_far_it_is(work, queue, cli):
    script = f'{sys.executable} -m blueque.cli.main progress 3/7 "of   all" && while [ ! -e go ]; do sleep 0.01; done'
    program = work.write(f"#!/bin/sh\ncd {work.directory}\n{script}\n", "script", mode=0o755)
    work.listener("--exec", str(program))
    task = queue.enqueue("p")

    until(
        lambda: work.client.get_task(task).fields.get("progress") == "3/7 of all",
        what="its progress",
    )
    go(work)
    assert outcome(work.client, task).status == "complete"


@pytest.mark.parametrize(
    "words",
    [
        ("nan",),
        ("-1",),
        ("10/0",),
        ("inf",),
        ("-0.5", "encoding"),
        ("3/-4",),
        ("nan/3",),
        ("150%",),
        ("",),
        ("2/inf", "rows"),
    ],
)
def test_what_is_no_progress_is_refused(words, tmp_path):
    result = tell(tmp_path, *words)
    assert result.exit_code == 2
    assert "not a progress value" in result.stderr or "give a number or a text" in result.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (("0.4",), "0.4"),
        (("450/1500", "frames"), "450/1500 frames"),
        (("41%", "encoding"), "41% encoding"),
        (("0/0",), "0/0"),
        (("1.2k/10k",), "1.2k/10k"),
        (("12", "files"), "12 files"),
        (("waiting for  a\tlicence",), "waiting for a licence"),
        (("2/3-inch", "film"), "2/3-inch film"),
        (("\x1b[31mred\x1b[0m\x07\x1b]0;title\x07",), "red"),
        (("x" * 300,), "x" * 200),
    ],
)
def test_what_is_progress_is_written_in_a_line(words, written, tmp_path):
    assert tell(tmp_path, *words).exit_code == 0
    assert (tmp_path / "progress").read_text() == written


def test_who_cannot_write_it_says_so_and_does_not_fail(tmp_path):
    result = tell(tmp_path / "gone", "0.4")
    assert (result.exit_code, "No such file" in result.stderr) == (0, True)


@pytest.mark.parametrize("how", ["file", "processor"])
def test_what_a_task_tells_of_itself_comes_to_redis_as_a_line(
    client, reporter, processor, tmp_path, how
):
    told = "0.5 \x1b[31mred\x1b[0m\x07\nand " + "x" * 300
    if how == "file":
        (tmp_path / "progress").write_text(told)
        look(reporter, processor, "")
    else:
        processor.progress(told)
    assert client.get_task(processor.task.id).progress == ("0.5 red and " + "x" * 300)[:200]


def test_a_progress_file_that_has_just_been_emptied_changes_nothing(
    client, reporter, processor, tmp_path
):
    file = tmp_path / "progress"
    for content, at in (("0.3 encoding", 1), ("", 2), ("0.4 encoding", 2)):
        file.write_text(content)
        os.utime(file, (at, at))
        look(reporter, processor, "")
        assert client.get_task(processor.task.id).progress == (content or "0.3 encoding")


def test_outside_of_a_task_there_is_nothing_to_tell(run):
    assert run("progress", "0.4").stderr.startswith(
        "blueque: not inside a task: BLUEQUE_TASK_DIR is not set\n"
    )
