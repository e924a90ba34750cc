"""The demo, run as a person runs it: in a pipe, on a terminal, and interrupted."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.parse
import urllib.request
from pathlib import Path

import psutil
import pytest

from blueque import Task
from blueque.demo.handler import measure, shape
from blueque.demo.main import MISSING, find_packages, verify
from blueque.demo.programs import WentWrong
from blueque.demo.results import TOP
from blueque.task_process.running_task import RunningTask

COMMAND = [sys.executable, "-P", "-m", "blueque.demo"]


@pytest.fixture
def environ(tmp_path) -> dict[str, str]:
    """Its temporary directory is one of our own: it tells what the demo leaves, and which processes
    are the demo's.
    """
    (tmp_path / "tmp").mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "TERM": "xterm"}


def test_in_a_pipe_it_measures_the_standard_library_and_says_what_redis_holds(environ):
    """It kills a listener in the middle, too, and the page shows that the task goes on."""
    demo = subprocess.Popen(
        COMMAND, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    said, page = "", None
    for line in demo.stdout:
        said += line
        if "/login#" in line:
            page = line.split()[1]
        if "has adopted" in line and page is not None:  # while it runs
            assert "adopted" in _page_of(page, re.findall(r"process (\d+) runs on", said)[-1])
            page = None
    output, errors = said, demo.communicate(timeout=60)[1]

    assert (demo.returncode, errors) == (0, "")
    assert "\r" not in output
    total = len(find_packages(Path(sysconfig.get_paths()["stdlib"]))) + 1
    assert f"{total} tasks: {total - 1} complete, 1 failed" in output
    assert re.search(
        rf"^  {MISSING}: FileNotFoundError: .*\n? .*{MISSING}\.py", output, re.MULTILINE
    )
    assert "1 start, 1 adoption, 1 end, all in process" in output
    assert page is None, "nothing was adopted, or there was no page"
    lines = output.splitlines()
    assert [line for line in lines if len(line) > 79] == []
    header = next(number for number, line in enumerate(lines) if line.startswith("package "))
    ranking = lines[header + 1 : header + 1 + TOP]
    counts = [int(line.split()[2].replace(",", "")) for line in ranking]
    assert counts == sorted(counts, reverse=True)
    answers = {
        lines[number].split(maxsplit=4)[4]: lines[number + 1].strip() for number in _asked(lines)
    }
    assert answers["LLEN blueque_complete_tasks_stdlib"] == str(total - 1)
    assert answers["LLEN blueque_failed_tasks_stdlib"] == "1"
    assert _left_by(environ) == ([], [])


def test_on_a_terminal_ctrl_c_in_the_middle_leaves_nothing(environ):
    code, output = _run_on_terminal(environ, until="1 of ", then=b"\x03")

    assert code == 130
    assert "\r  [" in output
    assert output.rstrip().endswith("bin/demo: stopped by SIGINT; nothing is left behind")
    assert "Traceback" not in output
    assert _left_by(environ) == ([], [])


@pytest.mark.parametrize(
    ("number", "delay"),
    [
        (signal.SIGINT, 0.0),
        (signal.SIGTERM, 0.0),
        (signal.SIGINT, 0.1),
        (signal.SIGTERM, 0.3),
        (signal.SIGHUP, 0.3),
    ],
)
def test_a_signal_to_its_whole_group_leaves_nothing(environ, number, delay):
    demo = subprocess.Popen(
        COMMAND,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    assert demo.stdout is not None
    if delay:
        demo.stdout.readline()  # it has begun; what comes when is a matter of chance
        time.sleep(delay)

    os.killpg(demo.pid, number)
    output, _ = demo.communicate(timeout=60)

    assert demo.returncode in (128 + number, -number)  # the latter while Python itself still starts
    assert delay == 0.0 or "Traceback" not in output
    assert _left_by(environ) == ([], [])


def test_it_says_so_when_what_it_has_started_dies(environ):
    demo = subprocess.Popen(
        COMMAND, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if "  blueque dev " in line:
            for child in psutil.Process(int(line.split()[3].rstrip(":"))).children():
                if "--slots" in child.cmdline():  # its listener
                    child.kill()
            break

    _, errors = demo.communicate(timeout=60)

    assert demo.returncode == 1
    assert "The listener has ended by itself (killed by SIGKILL)" in errors
    assert _left_by(environ) == ([], [])


def test_when_nobody_reads_on_it_ends_without_a_word(environ):
    demo = subprocess.Popen(
        COMMAND, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None and demo.stderr is not None
    demo.stdout.readline()
    demo.stdout.close()

    assert demo.stderr.read() == ""
    assert demo.wait(60) == 128 + signal.SIGPIPE
    assert _left_by(environ) == ([], [])


def test_measure_counts_what_is_in_the_files_of_a_directory(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "one.py").write_text("def f():\n    if True:\n        pass\n")
    (tmp_path / "inner" / "two.py").write_text("class A:\n    pass\n\nasync def g(): pass")
    (tmp_path / "bad.py").write_text("def\n")
    (tmp_path / "notes.txt").write_text("def\n")

    assert measure(_task(tmp_path)) == {
        "package": "p",
        "files": 3,
        "lines": 8,
        "functions": 2,
        "classes": 1,
        "deepest": 2,
        "unreadable": 1,
    }


def test_measure_refuses_a_file_that_is_not_python(tmp_path):
    (tmp_path / "bad.py").write_text("def\n")

    with pytest.raises(SyntaxError):
        measure(_task(tmp_path / "bad.py"))


@pytest.mark.parametrize(
    ("source", "deepest"),
    [
        ("x = 1", 0),
        ("if a: pass\nelif b: pass\nelif c: pass\nelse: pass", 1),
        ("if a: pass\nelse:\n    if b: pass", 2),
        ("try: pass\nexcept E:\n    for x in y: pass\nelse: pass\nfinally: pass", 2),
        ("match x:\n    case 1: pass", 2),
        ("class A:\n    async def f(self):\n        async with b:\n            while c: pass", 4),
        ("f = lambda: [x for x in y if x]", 0),
    ],
)
def test_nesting_is_counted_in_blocks(source, deepest):
    assert shape(ast.parse(source))[2] == deepest


def test_a_result_too_few_or_a_failure_too_many_is_noticed():
    complete = Task(
        "1", {"status": "complete", "result": '{"package": "a"}', "result_encoding": "json"}
    )
    failed = Task("2", {"status": "failed"})
    too_early = Task("1", {**complete.fields, "eta": "5.5", "started": "5.4"})

    verify({"1": "a", "2": MISSING}, {"1": complete, "2": failed})
    for tasks, ended in [
        ({"1": "a", "2": MISSING, "3": "b"}, {"1": complete, "2": failed}),
        ({"1": "a", "2": "b"}, {"1": complete, "2": failed}),
        ({"1": "a"}, {"1": complete}),
        ({"1": "b", "2": MISSING}, {"1": complete, "2": failed}),
        ({"1": "a", "2": MISSING}, {"1": too_early, "2": failed}),
    ]:
        with pytest.raises(WentWrong):
            verify(tasks, ended)


def _task(path: Path) -> RunningTask:
    parameters = json.dumps({"package": "p", "path": str(path)})
    fields = {"parameters": parameters, "parameters_encoding": "json"}
    return RunningTask("t", fields, directory=None)


def _page_of(address: str, pid: str) -> str:
    """Return the page of the task that is this process, as a person finds it."""
    url, _, token = address.partition("/login#")
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    own = {"Origin": url}
    body = urllib.parse.urlencode({"token": token}).encode()
    with browser.open(urllib.request.Request(f"{url}/login", body, own), timeout=15) as first:
        running = re.findall(r'href="(/tasks/[0-9a-f-]{36})"', first.read().decode())
    pages = [
        browser.open(url + path, timeout=15).read().decode() for path in dict.fromkeys(running)
    ]
    return next(page for page in pages if re.search(rf"\b{pid}\b", page))


def _asked(lines: list[str]) -> list[int]:
    """Return the numbers of the lines that hold a question to redis-cli."""
    return [number for number, line in enumerate(lines) if re.match(r"\$ \S+ -p \d+ ", line)]


def _left_by(environ: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the commands of processes, and the files, that a demo with this environment has left."""
    marker = f"TMPDIR={environ['TMPDIR']}".encode()
    processes = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and marker in (entry / "environ").read_bytes().split(b"\0"):
                processes.append((entry / "cmdline").read_text().replace("\0", " "))
    return processes, [path.name for path in Path(environ["TMPDIR"]).iterdir()]


def _run_on_terminal(environ: dict[str, str], until: str, then: bytes) -> tuple[int, str]:
    """Run the demo on a terminal, type `then` when `until` is on it; return the exit code and all
    that was shown.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(COMMAND[0], COMMAND, environ)
    shown = b""
    is_typed = False
    with contextlib.suppress(OSError):  # how a terminal says that all programs have left it
        while piece := os.read(terminal, 4096):
            shown += piece
            if not is_typed and until.encode() in shown:
                os.write(terminal, then)
                is_typed = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()
