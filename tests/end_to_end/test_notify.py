"""What systemd is told, by whom, and that no task inherits where to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time

import pytest
from running import Programs, outcome, patched, until

from blueque.system.systemd import Notifier

WORK = """
    import json, os, time
    from pathlib import Path

    def run(task):
        Path("began").touch()
        while not Path("go").exists():
            time.sleep(0.005)
        return sorted(name for name in os.environ if name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
"""


class Systemd:
    """A socket to be told on."""

    def __init__(self, address):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)
        self.heard = []

    def hears(self, text, what=None):
        until(lambda: any(text in one for one in self.hear()), what=f"{text} among {self.heard}")

    def hear(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.heard.append(self._socket.recv(4096).decode())
        return self.heard

    def close(self):
        self._socket.close()


@pytest.fixture
def names(request, tmp_path):
    """The name of a socket, as it is bound and as it is told."""
    if request.param == "path":
        return str(tmp_path / "notify"), str(tmp_path / "notify")
    return f"\0blueque-{os.getpid()}-{tmp_path.name}", f"@blueque-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def systemd(names):
    opened = Systemd(names[0])
    yield opened
    opened.close()


def test_who_was_not_asked_says_nothing_and_leaves_the_environment_as_it_was():
    environ = {"HOME": "/"}
    notifier = Notifier(environ)
    notifier.tell("READY=1")
    assert (notifier.is_wanted, notifier.watchdog, environ) == (False, float("inf"), {"HOME": "/"})


def test_a_socket_that_is_gone_is_no_reason_to_fail(tmp_path):
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("READY=1")


def test_what_could_not_be_sent_is_sent_the_next_time(tmp_path):
    address = str(tmp_path / "notify")
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.tell("READY=1")
    systemd = Systemd(address)
    notifier.tell("READY=1")
    systemd.hears("READY=1")
    notifier.tell("READY=1")
    systemd.close()
    assert systemd.heard == ["READY=1"]


def test_a_watchdog_is_for_the_process_that_it_names():
    for pid, seconds in ((os.getpid(), 30.0), (1, float("inf"))):
        environ = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(pid)}
        assert Notifier(environ).watchdog == seconds
        assert environ == {}


@pytest.mark.parametrize("names", ["abstract"], indirect=True)
def test_a_listener_is_ready_when_its_slots_are_registered_and_tells_how_many_are_busy(
    programs, systemd, names
):
    queue = programs.client.get_queue("work")
    listener = programs.listener("work:run", slots=2, environ={"NOTIFY_SOCKET": names[1]})
    systemd.hears("READY=1\nSTATUS=0/2 running")
    task_id = queue.enqueue("")
    systemd.hears("STATUS=1/2 running")
    listener.send(signal.SIGTERM)
    systemd.hears("STOPPING=1")
    (programs.directory / "go").touch()
    assert listener.wait() == 0
    assert json.loads(outcome(programs.client, task_id).fields["result"]) == []


@pytest.mark.parametrize("names", ["path"], indirect=True)
def test_systemd_is_told_after_sighup_as_before(programs, systemd, names):
    queue = programs.client.get_queue("work")
    listener = programs.listener("work:run", slots=2, environ={"NOTIFY_SOCKET": names[1]})
    task_id = queue.enqueue("")
    systemd.hears("STATUS=1/2 running")
    before = len(systemd.heard)
    listener.send(signal.SIGHUP)
    listener.says("replacing 2 listeners")
    until(lambda: "READY=1\nSTATUS=1/2 running" in systemd.hear()[before:], what="another word")
    assert not [text for text in systemd.heard if "STOPPING" in text]
    (programs.directory / "go").touch()
    assert json.loads(outcome(programs.client, task_id).fields["result"]) == []
    systemd.hears("STATUS=0/2 running")
    assert json.loads(outcome(programs.client, queue.enqueue("")).fields["result"]) == []
    assert listener.stop() == 0


def test_a_listener_is_ready_without_redis_after_a_while_only(programs, tmp_path):
    systemd = Systemd(str(tmp_path / "notify"))
    with socket.socket() as nobody:  # bound, and not listening: connections are refused
        nobody.bind(("127.0.0.1", 0))
        away = Programs(f"redis://127.0.0.1:{nobody.getsockname()[1]}/0", tmp_path)
        with away:
            environ = {
                "NOTIFY_SOCKET": str(tmp_path / "notify"),
                **patched({"node.master._READY_AFTER": 1.5}),
            }
            listener = away.listener("work:run", environ=environ, is_awaited=False)
            listener.says("waiting")
            assert systemd.hear() == []
            systemd.hears("READY=1\nSTATUS=0/1 running, 1 not registered")
            listener.send(signal.SIGTERM)
            assert listener.wait() == 0
    systemd.close()


@pytest.mark.parametrize("names", ["path"], indirect=True)
def test_a_scheduler_is_ready_and_gives_signs_in_time(programs, systemd, names):
    scheduler = programs.scheduler(environ={"NOTIFY_SOCKET": names[1], "WATCHDOG_USEC": "300000"})
    systemd.hears("READY=1")
    before = time.monotonic()
    until(lambda: systemd.hear().count("WATCHDOG=1") >= 4, what="four signs")
    assert time.monotonic() - before < 30  # not only at the looks, which are a minute apart
    scheduler.send(signal.SIGHUP)
    scheduler.says("the new configuration is in effect")
    heard = len(systemd.hear())
    until(lambda: systemd.hear()[heard:].count("WATCHDOG=1") >= 4, what="signs after SIGHUP")
    scheduler.send(signal.SIGTERM)
    systemd.hears("STOPPING=1")
    assert scheduler.wait() == 0
