"""blueque.system.process with real processes."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from running import memory_of

from blueque.system import process
from blueque.system.signals import Signals, blocked, unblock


@pytest.fixture
def child():
    """A process that waits to be killed."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.pause()
        finally:
            os._exit(0)
    yield pid
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def known(pid):
    return {name: str(value) for name, value in process.identity(pid).items()}


def test_a_process_is_alive_by_its_identity(child):
    assert process.is_alive(child, known(child))


def test_another_process_with_the_same_pid_is_not_the_one_that_was_recorded(child):
    assert not process.is_alive(child, {**known(child), "pid_start": "1"})


@pytest.mark.parametrize("field", ["boot", "ns"])
def test_nothing_can_be_said_of_a_process_of_another_boot_or_container(child, field):
    elsewhere = {**known(child), field: "other", "pid_start": "1"}

    assert process.is_alive(child, elsewhere)
    assert not process.shares_pids(elsewhere)


def test_a_process_that_has_ended_is_not_alive_even_before_it_is_reaped(child):
    recorded = known(child)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

    assert not process.is_alive(child, recorded)


def test_a_process_of_which_the_kernel_tells_us_nothing_is_alive_as_long_as_it_is_there(
    child, monkeypatch
):
    recorded = known(child)
    monkeypatch.setattr(process, "read_stat", lambda pid: [])  # as if /proc hid it from us

    assert process.is_alive(child, recorded) and process.is_alive(child, {})
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not process.is_alive(child, recorded) and not process.is_alive(child, {})


def test_a_process_of_another_user_is_running():
    assert process.is_running(1)


def test_a_program_name_with_parentheses_does_not_confuse_the_start_time(tmp_path):
    program = tmp_path / "a) S (b"
    program.write_text("#!/bin/sh\nread line\n")
    program.chmod(0o755)
    read, write = os.pipe()
    pid = os.posix_spawn(
        program, [str(program)], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, read, 0)]
    )

    ticks = process.start_ticks(pid)

    os.close(write)
    os.close(read)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert ticks is not None
    assert ticks >= (process.start_ticks(os.getpid()) or 0)


def test_a_forked_body_never_comes_back_and_ends_with_what_it_returns():
    pid = process.fork(lambda: 7)

    assert process.wait_for(pid) == 7


def test_a_forked_body_that_raises_ends_with_status_1(capfd):
    def body():
        raise ValueError("told by the child")

    pid = process.fork(body)

    assert process.wait_for(pid) == 1
    assert "told by the child" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("body", "code"), [(lambda: 7, 7), (lambda: os.kill(os.getpid(), signal.SIGTERM), -15)]
)
def test_how_a_process_ended_that_its_parent_has_not_reaped_can_be_seen_by_others(body, code):
    pid = process.fork(body)
    ticks = process.start_ticks(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    seen = process.fork(lambda: process.ending_of_zombie(pid, ticks).code == code)

    assert process.wait_for(seen) == 1
    assert process.ending_of_zombie(pid, ticks + 1) is None
    process.reap(pid)
    assert process.ending_of_zombie(pid, ticks) is None


def test_of_a_process_that_runs_no_ending_is_seen(child):
    assert process.ending_of_zombie(child, process.start_ticks(child)) is None


def test_signals_wait_to_be_taken_and_their_handlers_are_put_back():
    before = signal.getsignal(signal.SIGUSR1)
    signals = Signals([signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGUSR1)

    assert process.wait_readable([signals.fileno()], 5) == {signals.fileno()}
    assert signals.take() == [signal.SIGUSR1]
    assert signals.take() == []
    signals.restore()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_blocked_signal_reaches_a_child_when_it_is_ready_for_it():
    read, write = os.pipe()

    def body():
        signals = Signals([signal.SIGTERM])
        os.read(read, 1)  # by now the signal has been sent, and is held back
        unblock([signal.SIGTERM])
        process.wait_readable([signals.fileno()], 5)
        return 0 if signals.take() == [signal.SIGTERM] else 1

    with blocked([signal.SIGTERM]):
        pid = process.fork(body)
    os.kill(pid, signal.SIGTERM)
    os.write(write, b"x")

    assert process.wait_for(pid) == 0
    os.close(read)
    os.close(write)


def test_this_process_can_become_a_subreaper(tmp_path):
    def body():
        process.become_subreaper()
        if os.fork() == 0:  # the child leaves a grandchild behind
            if os.fork() == 0:
                os._exit(7)
            os._exit(0)
        codes = sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))
        return 0 if codes == [0, 7] else 1

    assert process.wait_for(process.fork(body)) == 0


@pytest.mark.parametrize("kernel_knows", [True, False])
def test_children_are_ours_those_too_that_have_ended_or_were_forked_by_a_thread(
    monkeypatch, child, kernel_knows
):
    def fork_two():
        pids.extend([process.fork(lambda: 0), process.fork(lambda: 0)])
        done.wait()  # its children become the first thread's when it ends

    if not kernel_knows:  # it is built without CONFIG_PROC_CHILDREN
        monkeypatch.setattr(process, "_knows_children", lambda: False)
    before = process.children(os.getpid())
    pids: list[int] = []
    done = threading.Event()
    thread = threading.Thread(target=fork_two)
    grandchild_read, grandchild_write = os.pipe()
    pids.append(process.fork(lambda: process.fork(lambda: len(os.read(grandchild_read, 1))) and 0))
    thread.start()
    while len(pids) < 3:
        time.sleep(0.001)
    for pid in pids:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    found = process.children(os.getpid())

    os.write(grandchild_write, b"x")
    done.set()
    thread.join()
    for pid in pids:
        os.waitpid(pid, 0)
    os.close(grandchild_read)
    os.close(grandchild_write)
    assert child in before
    assert found - before == set(pids)


def test_a_process_that_is_gone_has_no_children():
    pid = process.fork(lambda: 0)
    process.reap(pid)

    assert process.children(pid) == set()


def test_an_ended_child_is_reaped_with_what_it_and_its_children_used():
    def use():
        def use_memory():
            with mmap.mmap(-1, 128 * 2**20) as memory:
                memory.write(b"x" * len(memory))
            return 0

        while time.process_time() < 0.2:
            pass
        return 7 + process.wait_for(process.fork(use_memory))

    pid = process.fork(use)

    reaped = process.wait_usage(pid)

    assert reaped.code == 7
    assert 0.2 <= reaped.cpu_seconds < 2.0
    # What it has from us by the fork counts, and pytest may be large by now.
    assert 256 * 2**20 < reaped.max_rss_bytes < 512 * 2**20 + 2 * memory_of(os.getpid())
    assert not process.is_running(pid)


def test_a_child_that_was_killed_is_reaped_with_the_signal(child):
    os.kill(child, signal.SIGKILL)

    assert process.wait_usage(child).code == -signal.SIGKILL


@pytest.fixture
def host(tmp_path):
    """The root of a plain host as far as we look at it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    return tmp_path


def test_a_plain_host_is_no_container(host):
    assert not process.is_in_container({"PATH": "/bin", "container": ""}, str(host))
    (host / "proc/self/ns/pid").unlink()
    assert not process.is_in_container({}, str(host))


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_a_container_is_known_by_its_marks(host, mark):
    (host / mark).touch()

    assert process.is_in_container({}, str(host))


@pytest.mark.parametrize(
    "environ", [{"container": "podman"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}]
)
def test_a_container_is_known_by_its_environment(host, environ):
    assert process.is_in_container(environ, str(host))


def test_a_container_is_known_by_its_pids(host):
    (host / "proc/self/ns/pid").unlink()
    (host / "proc/self/ns/pid").symlink_to("pid:[4026532201]")

    assert process.is_in_container({}, str(host))


def test_a_pid_namespace_of_its_own_is_a_container(tmp_path):
    (tmp_path / "proc").symlink_to("/proc")
    code = f"import sys; from blueque.system import process; sys.exit(5 + process.is_in_container({{}}, {str(tmp_path)!r}))"

    try:
        done = subprocess.run(
            ["unshare", "--pid", "--fork", sys.executable, "-c", code], check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode == 1:
        pytest.skip("we may not make a namespace")
    assert done.returncode == 6


def test_a_process_has_the_name_that_it_was_given():
    pid = os.fork()
    if pid == 0:
        process.set_name("some-name")
        with open("/proc/self/comm") as file:
            os._exit(0 if file.read() == "some-name\n" else 1)
    assert process.wait_for(pid) == 0
