"""blueque stack: where a running Python task is just now."""

from __future__ import annotations

import fcntl
import html
import os
import re
import signal
from pathlib import Path

import pytest
from asking import ask_app
from running import Programs, outcome, patched, until

from blueque.cli import log_files
from blueque.cli.verbs import stack as cli_stack
from blueque.spool.attempt import Attempt
from blueque.task_process import stack_dump as stacks
from blueque.web import create_app

WORK = """
    import os, threading, time
    from pathlib import Path
    import blueque

    def run(task):
        threading.Thread(target=beside, daemon=True).start()
        print("in the middle", flush=True)
        wait_for_go()
        return "as if nothing had been"

    @blueque.handler("work")
    def decorated(task, parameters):
        run(task)

    def beside():
        time.sleep(1000)

    def wait_for_go():
        while not Path("go").exists():
            time.sleep(0.005)

    def draw(task):
        print("in the middle", flush=True)
        os.write(2, b"\\r 45%|####5     | 45/100 [00:10<00:12,  4.51it/s]")
        wait_for_go()
        print('  File "work.py", line 1, in draw', flush=True)
        while True:
            time.sleep(0.005)

    def hold_the_lock(task):
        print("in the middle", flush=True)
        (r"(a+)+$" and __import__("re")).match(r"(a+)+$", "a" * 26 + "b")
        return "through"
"""


@pytest.fixture
def work(url, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_stack, "PACE", 0.05)
    monkeypatch.setattr(cli_stack, "QUIET", 0.5)
    with Programs(url, tmp_path, patched({"node.reporter.PACE": 0.05})) as programs:
        programs.write(WORK)
        yield programs


@pytest.fixture
def queue(client):
    return client.get_queue("work")


def files_of(task):
    return Path(task.files.partition(":")[2])


def begun(client, task_id):
    until(
        lambda: [line.text for line in client.get_log(task_id)[0]] == ["in the middle"],
        what="it is in the middle",
    )


def test_all_threads_of_a_task_are_shown_as_often_as_one_asks_and_it_goes_on(
    work, queue, client, run
):
    work.listener("work:run")
    task_id = queue.enqueue("in")
    begun(client, task_id)

    for _ in range(2):
        result = run("stack", task_id[:8])

        assert (result.returncode, result.stderr) == (0, "")
        assert "in wait_for_go" in result.stdout and "in beside" in result.stdout
        assert result.stdout.count("hread 0x") == 2
    (work.directory / "go").touch()
    assert outcome(client, task_id).result == "as if nothing had been"
    assert (
        len(
            [line for line in client.get_log(task_id)[0] if line.text.startswith("blueque: stack ")]
        )
        == 2
    )
    late = run("stack", task_id)
    assert late.returncode == 5 and "does not run: it is complete" in late.stderr


def test_the_most_recent_call_comes_last_with_its_source_and_without_the_frames_below_the_handler(
    work, queue, client, run
):
    work.listener("work:decorated")
    task_id = queue.enqueue("in")
    begun(client, task_id)

    lines = run("stack", task_id).stdout.splitlines()

    assert [line.partition("(")[2] for line in lines if "hread 0x" in line] == [
        "most recent call last):"
    ] * 2
    of_task = lines[
        next(n for n, line in enumerate(lines) if line.startswith("Current thread")) + 1 :
    ]
    frames = [line.rpartition(" in ")[2] for line in of_task if line.startswith("  File ")]
    assert frames == ["decorated", "run", "wait_for_go"]
    assert of_task[3] == "    wait_for_go()" and of_task[-1] in (
        "    time.sleep(0.005)",
        '    while not Path("go").exists():',
        "",
    )

    whole = [line.rpartition(" in ")[2] for line in run("logs", task_id).stdout.splitlines()]
    assert "live" in whole and whole.index("work") - 1 == whole.index("decorated")


def test_the_page_of_a_task_shows_the_same_frames_as_the_command_but_no_source(
    work, queue, client, run
):
    work.listener("work:decorated")
    task_id = queue.enqueue("in")
    begun(client, task_id)
    told = run("stack", task_id).stdout

    page = ask_app(create_app(client), f"/tasks/{task_id}").text
    shown = html.unescape(page.partition("<h2>Stack")[2].partition("h-log")[0])

    frames = re.findall(r'File "[^"]*", line \d+ in \w+', told)
    assert [frame.rpartition(" ")[2] for frame in frames][-3:] == [
        "decorated",
        "run",
        "wait_for_go",
    ]
    assert re.findall(r'File "[^"]*", line \d+ in \w+', shown) == frames
    assert "wait_for_go()" in told and "wait_for_go()" not in shown
    assert re.search(r"\d s</time>|\d ms</time>|\d s ago</time>", shown)


def test_no_source_is_shown_of_a_file_that_has_changed_since(work, queue, client, run):
    work.listener("work:run")
    task_id = queue.enqueue("in")
    begun(client, task_id)
    work.write("# another text\n" * 100)

    result = run("stack", task_id)

    assert "in wait_for_go" in result.stdout and "another text" not in result.stdout


def test_a_task_that_never_lets_others_run_is_shown(work, queue, client, run):
    work.listener("work:hold_the_lock")
    task_id = queue.enqueue("in")
    begun(client, task_id)

    result = run("stack", task_id)

    assert "in hold_the_lock" in result.stdout


def test_what_is_shown_is_no_sign_of_life_and_ends_no_bar_but_what_the_task_prints_after_it_is(
    work, queue, client, run
):
    work.listener("work:draw")
    inspector, task_id = client.get_inspector(), queue.enqueue("in")
    until(
        lambda: client.get_task(task_id).fields.get("progress") == "45/100", what="the bar was seen"
    )
    task = client.get_task(task_id)
    printed = inspector.signs(task).printed

    assert "in wait_for_go" in run("stack", task_id).stdout
    assert "in wait_for_go" in run("stack", task_id).stdout

    lines = client.get_log(task_id)[0]
    assert {line.stream for line in lines[1:]} == {"blueque"} and len(lines) > 4
    # The id of a line in Redis has milliseconds, what its listener notes has microseconds.
    assert inspector.signs(task).printed < printed + 0.001
    assert inspector.overview().printed[task_id] <= printed
    assert (files_of(task) / "stderr").read_bytes().count(b"\n") == 0
    assert [line.text for line in log_files.from_files(task, None) if line.stream == "blueque"] == [
        line.text for line in lines[1:]
    ]

    (work.directory / "go").touch()
    until(lambda: inspector.signs(task).printed > printed, what="it has printed more")
    run("cancel", task_id, "--yes")


def test_a_program_has_none_and_is_not_ended_by_the_question(work, queue, client, run):
    work.write(
        "echo in the middle; while [ ! -e go ]; do sleep 0.01; done; echo through", "wait.sh"
    )
    work.listener("--exec", "sh", "wait.sh")
    task_id = queue.enqueue("in")
    begun(client, task_id)

    result = run("stack", task_id)
    (work.directory / "go").touch()

    assert (result.returncode, result.stdout) == (5, "")
    assert "cannot show its stack: the task is not a Python handler" in result.stderr
    assert outcome(client, task_id).result == "through"
    assert [line.text for line in client.get_log(task_id)[0]] == ["in the middle", "through"]


def test_without_an_answer_it_says_so(monkeypatch, queue, cli):
    from click.testing import CliRunner

    from blueque.cli.failure import Failure
    from blueque.cli.options import Invocation
    from blueque.cli.verbs import stack

    monkeypatch.setattr(stack, "PATIENCE", 0.3)
    task_id = queue.enqueue("in")
    cli.hset(
        f"blueque_task_{task_id}", mapping={"status": "started", "node": "host_1", "token": "t"}
    )

    client = cli.connection_pool.connection_kwargs
    obj = Invocation(url=f"redis://{client['host']}:{client['port']}/0")
    result = CliRunner().invoke(stack.stack, [task_id], obj=obj, standalone_mode=False)

    assert isinstance(result.exception, Failure) and result.exception.exit_code == 124
    assert "did not answer within" in str(result.exception.message)


def test_of_a_task_that_ended_before_it_had_shown_anything_that_is_said(
    monkeypatch, queue, cli, url
):
    from click.testing import CliRunner

    from blueque.cli.options import Invocation
    from blueque.cli.verbs import stack

    task_id = queue.enqueue("in")
    cli.hset(
        f"blueque_task_{task_id}", mapping={"status": "started", "node": "host_1", "token": "t"}
    )
    monkeypatch.setattr(stack, "_answer", lambda client, place, mark: [f"blueque: stack {mark}"])

    result = CliRunner().invoke(
        stack.stack, [task_id], obj=Invocation(url=url), standalone_mode=False
    )

    assert result.exception.exit_code == 124 and "has shown nothing" in result.exception.message


def test_while_another_listener_reads_the_file_a_task_is_not_asked(tmp_path):
    attempt, (ready, said) = Attempt(str(tmp_path), ""), os.pipe()
    pid = os.fork()
    if pid == 0:
        stacks.register()
        os.write(said, b".")
        signal.pause()
    try:
        os.read(ready, 1)
        pidfd, memory = os.pidfd_open(pid), stacks._open_memory(pid)
        fcntl.flock(memory, fcntl.LOCK_EX)
        assert stacks.show(attempt, pid, pidfd, "mark") == stacks.BUSY
        os.close(memory)
        assert not (tmp_path / "stack").exists()
        assert stacks.show(attempt, pid, pidfd, "mark") is None
        os.close(pidfd)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(said)
    assert b"blueque: stack mark\n" in (tmp_path / "stack").read_bytes()


def test_a_task_that_has_closed_its_descriptor_is_not_asked_and_its_own_file_stays_as_it_is(
    tmp_path,
):
    attempt, (ready, said) = Attempt(str(tmp_path), ""), os.pipe()
    pid = os.fork()
    if pid == 0:
        stacks.register()
        os.closerange(said + 1, 1024)
        os.dup2(os.open(tmp_path / "precious", os.O_RDWR | os.O_CREAT), stacks.DESCRIPTOR)
        os.write(said, b".")
        signal.pause()
    try:
        os.read(ready, 1)
        pidfd = os.pidfd_open(pid)
        assert stacks.show(attempt, pid, pidfd, "mark") == stacks.CLOSED
        os.close(pidfd)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(said)
    assert (tmp_path / "precious").read_bytes() == b"" and not (tmp_path / "stack").exists()
