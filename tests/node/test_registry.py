"""Registry: the listeners beside one spool."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from blueque.node.registry import Registry
from blueque.system import process

DIRECTORY = "listeners"  # of the spool


@pytest.fixture
def roster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Registry(".")


@pytest.fixture
def sleeper():
    child = subprocess.Popen(["sleep", "1000"])
    yield child.pid
    child.kill()
    child.wait()


def ended_pid():
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def enter(pid, master, queue="video", **other):
    """Do what that process would do to join."""
    os.makedirs(DIRECTORY, exist_ok=True)
    entry = {
        "queues": [queue],
        **process.identity(pid),
        "master": master,
        "master_start": process.start_ticks(master),
    }
    entry |= other
    with open(f"{DIRECTORY}/{pid}", "w") as file:
        json.dump(entry, file)


def names():
    return sorted(os.listdir(DIRECTORY))


def test_nobody_is_there_before_the_first_has_joined(roster):
    assert (roster.alive(), roster.left_behind(["video"])) == (set(), set())


def test_who_has_joined_is_there_until_it_leaves(roster):
    roster.join(["video"], os.getppid())
    assert roster.alive() == {os.getpid()} and names() == [str(os.getpid())]
    assert roster.left_behind(["video"]) == set(), "its master lives"
    roster.join(["video"], os.getppid())
    roster.leave()
    assert roster.alive() == set() and names() == []
    roster.leave()


def test_the_entry_tells_this_process_and_its_master_from_later_ones(roster):
    roster.join(["video"], os.getppid())
    with open(f"{DIRECTORY}/{os.getpid()}") as file:
        assert json.load(file) == {
            "queues": ["video"],
            **process.identity(os.getpid()),
            "master": os.getppid(),
            "master_start": process.start_ticks(os.getppid()),
        }


def test_a_listener_whose_master_is_gone_is_left_behind_in_its_own_queue(roster, sleeper):
    gone = ended_pid()
    enter(os.getpid(), gone, master_start=5)
    enter(sleeper, os.getpid(), queue="video")
    assert roster.left_behind(["video"]) == {os.getpid()}
    assert roster.left_behind(["audio"]) == set()
    assert roster.alive() == {os.getpid(), sleeper}


def test_a_master_whose_pid_is_another_processes_by_now_is_gone(roster, sleeper):
    enter(sleeper, os.getpid(), master_start=process.start_ticks(os.getpid()) - 1)
    assert roster.left_behind(["video"]) == {sleeper}


def test_the_entries_of_those_that_are_gone_are_tidied_away(roster, sleeper):
    # another had the pid
    enter(sleeper, os.getpid(), pid_start=process.start_ticks(sleeper) - 1)
    gone = ended_pid()
    enter(gone, os.getpid(), pid_start=5)
    assert roster.alive() == set()
    assert names() == []


def test_a_listener_in_another_container_is_left_alone_and_not_taken_for_a_process_here(roster):
    enter(os.getpid(), ended_pid(), ns="1")
    assert (roster.alive(), roster.left_behind(["video"])) == (set(), set())
    assert names() == [str(os.getpid())]


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "{}"])
def test_an_entry_that_was_never_finished_is_none(roster, content):
    roster.join(["video"], os.getppid())
    # written by one that was killed then
    with open(f"{DIRECTORY}/{os.getpid()}.new", "w") as file:
        file.write(content)
    assert roster.alive() == {os.getpid()}
    assert names() == [str(os.getpid()), f"{os.getpid()}.new"]


@pytest.mark.parametrize("other", [{"pid_start": "x"}, {"master_start": "x"}, {"queue": None}])
def test_an_entry_with_nonsense_in_it_stops_nobody(roster, other):
    enter(os.getpid(), os.getppid(), **other)
    assert roster.alive() == {os.getpid()}
    roster.left_behind(["video"])
