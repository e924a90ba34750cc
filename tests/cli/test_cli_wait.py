"""blueque wait and run: until tasks have ended, with the exit code that says how."""

from __future__ import annotations

import json
import signal

import pytest
from running import Programs, patched, until

WORK = """
    import sys, time
    from pathlib import Path

    def run(task):
        for word in task.parameters.split(", "):
            if word == "fail":
                raise ValueError("as it was told")
            elif word == "go":
                print("waiting", flush=True)
                while not Path("go").exists():
                    time.sleep(0.005)
            elif word == "err":
                print("oh", file=sys.stderr)
            else:
                print(word)
        return {"said": task.parameters}
"""


@pytest.fixture
def work(url, tmp_path, monkeypatch):
    monkeypatch.setattr("blueque.cli.verbs.run.PACE", 0.05)
    with Programs(url, tmp_path, patched({"node.reporter.PACE": 0.05})) as programs:
        programs.write(WORK)
        yield programs


def end(cli, task_id, **fields):
    cli.hset(f"blueque_task_{task_id}", mapping={"started": 100, "finished": 100 + 16860, **fields})


def is_waiting(cli):
    """Tell whether somebody has tracking on, as who waits has, and has looked since."""
    return any(
        "t" in known["flags"] and not known["cmd"].startswith("client")
        for known in cli.client_list()
    )


JSON = {"result_encoding": "json"}
FAILED = {
    "status": "failed",
    "error": "ValueError: frame count mismatch",
    "error_type": "builtins.ValueError",
}


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"status": "complete"}, 0, "complete after 4 h 41 m"),
        ({"status": "complete", "result": "null", **JSON}, 0, "complete after 4 h 41 m"),
        ({"status": "complete", "result": "two\nlines"}, 0, r"complete after 4 h 41 m: two\nlines"),
        (
            {"status": "complete", "result": '{"frames": "\u00e9"}', **JSON},
            0,
            'complete after 4 h 41 m: {"frames": "\u00e9"}',
        ),
        (FAILED, 4, "failed after 4 h 41 m: ValueError: frame count mismatch"),
        (
            {"status": "failed", "error": "gone", "error_type": "lost"},
            4,
            "failed after 4 h 41 m: lost: gone",
        ),
        (
            {"status": "failed", "error": "the result is large", "error_type": "result"},
            4,
            "failed after 4 h 41 m: the result is large",
        ),
        (
            {"status": "cancelled", "cancelled_by": "ada", "cancel_reason": "no"},
            4,
            "cancelled after 4 h 41 m: by ada, no",
        ),
    ],
)
def test_the_exit_code_and_a_sentence_say_how_it_ended(run, queue, cli, fields, code, words):
    task_id = queue.enqueue("in")
    end(cli, task_id, **fields)

    result = run("wait", task_id[:8])

    assert (result.returncode, result.stdout, result.stderr) == (code, "", f"{task_id} {words}\n")


def test_a_long_result_is_cut_to_a_line(run, queue, cli, answer):
    task_id = queue.enqueue("in")
    end(cli, task_id, status="complete", result=json.dumps(["frame"] * 1000), **JSON)

    piped, seen = run("wait", task_id).stderr, answer(b"", "wait", task_id, columns=80)[1]

    assert piped.startswith(f'{task_id} complete after 4 h 41 m: ["frame", "frame"')
    waiting, line = seen.splitlines()
    assert (len(piped), len(line), waiting) == (241, 80, "Waiting for 1 task.")
    assert line.startswith(f'{task_id[:8]} complete after 4 h 41 m: ["frame", "frame"')


def test_results_on_standard_output_are_not_on_standard_error(run, queue, cli):
    task_id = queue.enqueue("in")
    end(cli, task_id, status="complete", result="[1]", **JSON)

    for option in ("--results", "--json"):
        assert run("wait", task_id, option).stderr == f"{task_id} complete after 4 h 41 m\n"


def test_the_lines_of_an_error_are_lines_and_json_has_the_results(run, queue, cli):
    good, bad = queue.enqueue("in"), queue.enqueue("in")
    end(cli, good, status="complete", result='{"frames": 3}', result_encoding="json")
    end(
        cli,
        bad,
        status="failed",
        error="exit code 3:\ninput: \x1b[2Jbad\ncannot read bad",
        error_type="exit",
    )

    result = run("wait", good, bad, "--json")

    assert (
        f"{bad} failed after 4 h 41 m: exit code 3:\n  input: \\x1b[2Jbad\n  cannot read bad\n"
        in result.stderr
    )
    items = {item["id"]: item for item in json.loads(result.stdout)["items"]}
    assert (items[good]["result"], items[bad]["result"]) == ({"frames": 3}, None)


def test_it_waits_for_all_or_for_any(begin, run, queue, cli):
    one, two = queue.enqueue("in"), queue.enqueue("in")
    waiting = begin("wait", one, two, "--json")
    until(lambda: is_waiting(cli))
    end(cli, one, status="complete")

    some = run("wait", "-", "--any", "--json", stdin=f"{two}\n{one}\n")
    end(cli, two, **FAILED)
    printed, _ = waiting.communicate(timeout=20)

    assert (some.returncode, waiting.returncode) == (0, 4)
    assert [item["id"] for item in json.loads(some.stdout)["items"]] == [one]
    assert [item["id"] for item in json.loads(some.stdout)["waiting"]] == [two]
    assert {item["id"]: item["status"] for item in json.loads(printed)["items"]} == {
        one: "complete",
        two: "failed",
    }
    assert {item["id"]: item["error"] for item in json.loads(printed)["items"]} == {
        one: None,
        two: FAILED["error"],
    }


def test_it_waits_so_long_at_most(run, queue):
    task_id = queue.enqueue("in")

    result = run("wait", task_id, "--timeout", "0.1", "--json")

    assert result.returncode == 124
    assert result.stderr == f"task {task_id} has not ended within 0.1 s; it is pending\n"
    assert json.loads(result.stdout)["timed_out"] is True


def test_what_is_not_there_is_not_waited_for(run, queue):
    result = run("wait", queue.enqueue("in"), "nobody")

    assert result.returncode == 3 and "no task 'nobody'" in result.stderr


def test_what_is_deleted_meanwhile_is_code_3(begin, queue, cli):
    task_id = queue.enqueue("in")
    waiting = begin("wait", task_id)
    until(lambda: is_waiting(cli))
    cli.delete(f"blueque_task_{task_id}")

    _, said = waiting.communicate(timeout=20)

    assert waiting.returncode == 3 and "was deleted during the wait" in said


@pytest.mark.parametrize("verb", ["wait", "run"])
def test_ctrl_c_ends_the_watching_only_and_says_so(begin, client, queue, cli, verb):
    if verb == "wait":
        task_id = queue.enqueue("in")
        watching = begin("wait", task_id)
        until(lambda: is_waiting(cli))
    else:
        watching = begin("run", "video", "null")
        task_id = watching.stderr.readline().split()[1]
    watching.send_signal(signal.SIGINT)

    _, said = watching.communicate(timeout=20)

    assert watching.returncode == 130
    assert (
        f"the task goes on: blueque logs -f {task_id}; to end it: blueque cancel {task_id}" in said
    )
    assert client.get_task(task_id).status == "pending"


def test_run_shows_what_a_task_prints_where_it_is_printed_and_its_result(work, run):
    work.listener("work:run", queue="video")

    result = run("run", "video", '"one, err, tw\\to"')
    failed = run("run", "video", "--text", "one, fail")

    assert (result.returncode, result.stdout) == (0, 'one\ntw\to\n{"said": "one, err, tw\\to"}\n')
    first, *said, last = result.stderr.splitlines()
    assert first.startswith("task ") and said == ["oh"] and " complete after " in last
    assert (failed.returncode, failed.stdout) == (4, "one\n")
    assert "ValueError: as it was told" in failed.stderr.splitlines()[-2]
    assert "To see more: blueque show " in failed.stderr.splitlines()[-1]


def test_run_says_when_the_next_attempt_is_due(work, begin):
    work.listener("work:run", "--retry", '{"max": 1, "backoff": 2, "jitter": 0}', queue="video")

    running = begin("run", "video", "--text", "fail")
    _, said = running.communicate(timeout=30)

    after = "attempt 1 failed: ValueError: as it was told; the next one is due in "
    assert running.returncode == 4
    assert [line[: len(after)] for line in said.splitlines()].count(after) == 1


def test_run_of_a_program_shows_its_last_line_once(work, run):
    work.listener("--exec", "sh", queue="video")

    result = run("run", "video", "--text", "echo one; echo two")

    assert (result.returncode, result.stdout) == (0, "one\ntwo\n")


def test_run_with_json_prints_one_object_and_follows_the_task_that_has_the_key(
    work, begin, run, client
):
    work.listener("work:run", queue="video")
    first = begin("run", "video", '"go"', "--key", "k", "--json")
    task_id = first.stderr.readline().split()[1]
    assert first.stderr.readline() == "waiting\n"
    (work.directory / "go").touch()
    printed, _ = first.communicate(timeout=20)

    again = run("run", "video", '"go"', "--key", "k", "--json")

    assert (first.returncode, again.returncode) == (0, 0)
    assert [json.loads(text)["item"]["id"] for text in (printed, again.stdout)] == [task_id] * 2
    assert json.loads(printed)["item"]["result"] == {"said": "go"}
    assert "Not new" in again.stderr


def test_several_tasks_end_with_their_number(run, client, queue):
    good, bad = queue.enqueue("a"), queue.enqueue("b")
    queue.cancel(bad)

    result = run("wait", good, bad, "--timeout", "0.01")

    assert result.stderr.splitlines()[-1] == "2 tasks: 1 cancelled, 1 not ended"


def test_a_person_is_told_for_what_it_waits_and_that_nobody_serves_the_queue(queue, answer):
    task = queue.enqueue("a")

    for words, first in (
        (("wait", task), "Waiting for 1 task."),
        (
            ("wait", "-q", queue.name),
            f"Waiting until nothing is left in queue {queue.name}: 1 pending.",
        ),
    ):
        lines = " ".join(answer(b"", *words, "--timeout", "0.01", columns=200)[1].split())
        assert first in lines
        assert f"No listener serves {queue.name}, so tasks wait." in lines
