"""The comparison of this process before and after a test: it must see what a test leaves, and
nothing else.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import process_state
import pytest

from blueque import Client

Undo = Callable[[], object]


def ignore_a_signal() -> Undo:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return lambda: signal.signal(signal.SIGHUP, before)


def handle_a_signal() -> Undo:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    return lambda: signal.signal(signal.SIGUSR1, before)


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


def change_the_directory() -> Undo:
    before = os.getcwd()
    os.chdir("/")
    return lambda: os.chdir(before)


def set_the_umask() -> Undo:
    before = os.umask(0o77)
    return lambda: os.umask(before)


def add_to_the_path() -> Undo:
    sys.path.append("/left")
    return lambda: sys.path.remove("/left")


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
        (handle_a_signal, "SigCgt"),
        (block_a_signal, "SigBlk"),
        (open_a_descriptor, os.devnull),
        (start_a_thread, "of the test"),
        (start_a_program, "sleep 600"),
        (leave_a_zombie, "a zombie"),
        (set_a_variable, "LEFT_BY_TEST: nothing before, b'1' after"),
        (change_the_directory, "working directory"),
        (set_the_umask, "umask"),
        (add_to_the_path, "sys.path"),
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


def test_of_a_socket_that_is_left_it_is_said_who_holds_it(monkeypatch):
    monkeypatch.setattr(process_state, "PATIENCE", 0.0)
    before = process_state.take()

    with socket.create_server(("127.0.0.1", 0)) as server:
        holder = SimpleNamespace(server=server)
        (trace,) = process_state.differences(before)

    assert holder.server is server
    assert "held by socket < " in trace and "SimpleNamespace" in trace


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


def test_signals_that_the_shell_ignores_or_blocks_act_by_default_in_tests_and_their_programs():
    says = "import signal; print(signal.getsignal(1), signal.getsignal(2), signal.pthread_sigmask(0, []))"
    code = (
        "import process_state, subprocess, sys; process_state.reset_signals(); "
        f"subprocess.run([sys.executable, '-c', {says!r}])"
    )

    def ignore() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=ignore,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
    )

    assert done.stdout.split() == [
        str(int(signal.SIG_DFL)),
        "<built-in",
        "function",
        "default_int_handler>",
        "set()",
    ]
