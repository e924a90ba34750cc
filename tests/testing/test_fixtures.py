"""blueque.testing.fixtures: a run of pytest with a Redis of its own."""

from __future__ import annotations

import subprocess
import sys

from running import ROOT, clean_environment

CONFTEST = 'pytest_plugins = ["blueque.testing.fixtures"]\n'
TESTS = """
from pathlib import Path

import pytest

from blueque import Client, RedisAway, handler


@handler("odd")
def odd(task, number):
    return number


def test_one(blueque_client, blueque_server):
    assert Client().url == blueque_client.url == blueque_server.url
    Path("pid").write_text(str(blueque_server.pid))
    blueque_client.get_queue("a").enqueue(1)


def test_two(blueque_client, blueque_server):
    assert Path("pid").read_text() == str(blueque_server.pid)
    assert blueque_client.get_inspector().queues() == []


def test_three(blueque_fake):
    task = odd.enqueue(1)
    assert blueque_fake.get_task(task).status == "pending"
    with pytest.raises(RedisAway, match="pass-the-fixture-as-the-client"):
        Client(patience=0).get_queue("odd").enqueue(1)


def test_four(blueque_fake):
    assert blueque_fake.get_inspector().queues() == []
"""


def test_the_fixtures_give_an_empty_redis_to_each_test_and_leave_none_behind(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    environ = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "."],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    pid = int((tmp_path / "pid").read_text())
    assert not is_redis(pid)


def is_redis(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return "redis" in file.read()
    except OSError:
        return False


def test_what_needs_no_pytest_does_not_import_it():
    code = "import sys, blueque.testing; print('pytest' in sys.modules, 'redis' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.stdout == "False False\n"
