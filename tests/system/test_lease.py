"""The lease of another process's record: proof on its own host, else a record that stands still."""

from __future__ import annotations

import subprocess
import sys

import pytest

from blueque.queries.feeds import is_process_gone
from blueque.system import process
from blueque.system.lease import Lease

ELSEWHERE = {"pid": "1", "boot": "another", "ns": "1", "beat": "0"}


def test_it_has_ended_at_once_when_the_process_has_ended_on_this_host():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = {name: str(value) for name, value in process.identity(child.pid).items()}
    record = {"pid": str(child.pid), **identity}
    assert not Lease().has_ended(record, 60.0)

    child.communicate()

    assert Lease().has_ended(record, 60.0)


@pytest.mark.parametrize("pid", ["", "0", "x", "9" * 20, "9" * 5000])
def test_what_is_no_pid_proves_no_end(pid):
    record = {"pid": pid, **{name: str(of) for name, of in process.identity(1).items()}}

    assert not Lease().has_ended(record, 60.0)
    assert not is_process_gone(record)


class Watch:
    """A lease of four seconds, which is looked at once a second."""

    def __init__(self, monkeypatch) -> None:
        self.lease, self.now = Lease(), 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def looks(self, record: dict[str, str], count: int) -> list[bool]:
        answers = []
        for _ in range(count):
            answers.append(self.lease.has_ended(record, 4.0))
            self.now += 1.0
        return answers


@pytest.fixture
def watch(monkeypatch) -> Watch:
    return Watch(monkeypatch)


def test_it_has_ended_when_the_record_has_stood_still_for_so_long(watch):
    assert watch.looks(ELSEWHERE, 5) == [False, False, False, False, True]


def test_a_record_that_moves_begins_it_anew(watch):
    watch.looks(ELSEWHERE, 3)

    assert watch.looks({**ELSEWHERE, "beat": "1"}, 5) == [False, False, False, False, True]


def test_a_failed_look_begins_it_anew(watch):
    watch.looks(ELSEWHERE, 3)
    watch.lease.restart()

    assert watch.looks(ELSEWHERE, 5) == [False, False, False, False, True]


def test_a_gap_between_two_looks_begins_it_anew(watch):
    watch.looks(ELSEWHERE, 3)
    watch.now += 1.0

    assert watch.looks(ELSEWHERE, 5) == [False, False, False, False, True]
