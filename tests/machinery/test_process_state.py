"""The comparison of this process before and after a test: it must see what a test leaves, and
nothing else.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import threading
import warnings
from collections.abc import Callable

import process_state
import pytest

from blueque import Client

Undo = Callable[[], object]


def ignore_a_signal() -> Undo:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return lambda: signal.signal(signal.SIGHUP, before)


def block_a_signal() -> Undo:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)


def open_a_descriptor() -> Undo:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    return lambda: os.close(descriptor)


def start_a_thread() -> Undo:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="of the test", daemon=True)
    thread.start()
    return lambda: (done.set(), thread.join())


def start_a_program() -> Undo:
    program = subprocess.Popen(["sleep", "600"])
    return lambda: (program.kill(), program.wait())


def leave_a_zombie() -> Undo:
    pid = os.posix_spawn("/bin/true", ["true"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return lambda: os.waitpid(pid, 0)


def set_a_variable() -> Undo:
    os.environ["LEFT_BY_TEST"] = "1"
    return lambda: os.environ.pop("LEFT_BY_TEST")


def add_a_log_handler() -> Undo:
    handler = logging.NullHandler()
    logging.getLogger("blueque").addHandler(handler)
    return lambda: logging.getLogger("blueque").removeHandler(handler)


def set_a_log_level() -> Undo:
    before = logging.getLogger().level
    logging.getLogger().setLevel(7)
    return lambda: logging.getLogger().setLevel(before)


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        (ignore_a_signal, "handler of signal 1"),
        (block_a_signal, "SigBlk"),
        (open_a_descriptor, os.devnull),
        (start_a_thread, "of the test"),
        (start_a_program, "sleep 600"),
        (leave_a_zombie, "a zombie"),
        (set_a_variable, "LEFT_BY_TEST: nothing before, b'1' after"),
        (add_a_log_handler, "logger blueque"),
        (set_a_log_level, "logger root"),
    ],
)
def test_what_is_left_is_named_and_nothing_when_it_has_been_taken_away(monkeypatch, leave, said):
    monkeypatch.setattr(process_state, "PATIENCE", 0.0)
    before = process_state.take()

    undo = leave()
    try:
        traces = process_state.differences(before)
    finally:
        undo()

    assert said in "\n".join(traces)
    assert process_state.differences(before) == []


@pytest.mark.parametrize("is_same", [True, False])
def test_a_socket_in_the_place_of_another_is_left_unless_it_has_the_same_peer(monkeypatch, is_same):
    monkeypatch.setattr(process_state, "PATIENCE", 0.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        first = socket.create_connection(one.getsockname())
        number = first.fileno()
        before = process_state.take()
        first.close()
        with socket.create_connection((one if is_same else two).getsockname()) as second:
            assert second.fileno() == number
            traces = process_state.differences(before)
    assert bool(traces) is not is_same


def test_what_the_garbage_collection_closes_is_not_left():
    before = process_state.take()

    file = open(os.devnull)  # noqa: SIM115  # it is left to the garbage collection
    ring = [file]
    ring.append(ring)
    del file, ring

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        assert process_state.differences(before) == []


def test_a_client_that_has_logged_an_error_is_not_kept_by_the_log(url, cli, caplog):
    client = Client(url, patience=2)
    client.get_task("t")
    cli.client_kill_filter(_type="normal", skipme=True)

    client.get_task("t")

    assert "trying again" in caplog.text  # its connection is looked for when this test is over


def test_a_thread_that_is_about_to_end_is_not_left():
    before = process_state.take()

    threading.Timer(0.05, lambda: None).start()

    assert process_state.differences(before) == []
