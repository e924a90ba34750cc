"""What `ps` shows as the command of a process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from running import ROOT

PROGRAM = """
import json, sys
from blueque.system.title import Title

def shown():
    command, environ = (open(f"/proc/self/{name}", "rb").read() for name in ("cmdline", "environ"))
    return [command.decode(errors="replace").rstrip(chr(0)).split(chr(0)), hash(environ)]

title, found = Title(), [shown()]
for text in json.loads(sys.argv[1]):
    title.show(text * int(sys.argv[2]))
    found.append(shown())
title.restore()
print(json.dumps([found, shown(), len(open("/proc/self/cmdline").read())]))
"""


@pytest.fixture
def run(tmp_path):
    """Run a program that shows titles; return what was shown before, each time, and at the end."""

    def run(*texts, times=1):
        command = [sys.executable, "-c", PROGRAM, json.dumps(texts), str(times)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found, after, room = json.loads(done.stdout)
        assert found[0][0] == after[0] == command and len({environ for _, environ in found}) == 1
        return [title for title, _ in found[1:]], room

    return run


def test_a_title_takes_the_place_of_the_arguments_until_they_are_restored(run):
    titles, _ = run("blueque: task 1 of films", "blueque: task 2 of films")

    assert titles == [["blueque: task 1 of films"], ["blueque: task 2 of films"]]


def test_a_title_never_takes_more_than_the_arguments_and_no_byte_of_the_environment(run):
    ((title,),), room = run("x", times=10_000)

    assert title == "x" * (room - 1)


def test_characters_that_cannot_be_written_are_shown_as_their_numbers(run):
    titles, _ = run("queue é \udc80")

    assert titles == [["queue é \\udc80"]]


def test_few_arguments_are_left_alone(tmp_path):
    (tmp_path / "p.py").write_text(
        "from blueque.system.title import Title\n"
        "Title().show('title')\n"
        "print(open('/proc/self/cmdline').read().split(chr(0))[:2])"
    )

    done = subprocess.run(
        ["py", "p.py"],
        executable=sys.executable,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert done.stdout == "['py', 'p.py']\n", done.stderr
