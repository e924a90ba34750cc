"""The check and the exec of a reload; what listener and scheduler make of them is in
tests/end_to_end/test_reload_run.py.
"""

from __future__ import annotations

import os
import sys

import pytest

from blueque.node.reload import Check, Kept, replace_program
from blueque.system import process


def run(check: Check) -> bool:
    check.begin()
    assert check.pid is not None
    return check.end(process.wait_for(check.pid))


def test_the_answer_of_a_check_that_passes_is_kept():
    script = "import os; os.write(int(os.environ['BLUEQUE_LISTENER_ANSWER_TO']), b'choices')"
    check = Check([sys.executable, "-c", script])
    assert run(check)
    assert process.read_from_memory(check.answer) == "choices"


@pytest.mark.parametrize("script", ["raise SystemExit(78)", "import os; os.kill(os.getpid(), 9)"])
def test_a_check_that_fails_is_logged_and_leaves_nothing_open(script, caplog):
    assert not run(Check([sys.executable, "-c", script]))
    assert "nothing changes" in caplog.text


def test_a_program_that_cannot_be_replaced_goes_on_and_its_descriptors_stay_its_own(
    monkeypatch, caplog, tmp_path
):
    read, write = os.pipe()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PWD", str(tmp_path))
    here = os.getcwd()
    replace_program([sys.executable], {}, [read, write])
    assert os.getcwd() == here
    assert "No such file or directory; nothing changes" in caplog.text
    assert not os.get_inheritable(read) and not os.get_inheritable(write)
    os.close(read)
    os.close(write)


def test_what_is_kept_of_the_program_before_is_taken_once(monkeypatch):
    kept = Kept(0.1 + 0.2, "an order", [7, 8], [9])
    for name, value in kept.environ.items():
        monkeypatch.setenv(name, value)
    assert (Kept.take(), Kept.take()) == (kept, None)
