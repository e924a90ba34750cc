"""Host names: what node ids call a machine, which names are refused, and what a change of the name
does to running tasks.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

import handlers
import pytest
from handlers import begin, ended, has_moved, is_sound, ledger, let_go, owner
from running import is_there, until
from test_recovery import ended_process, hold, register, register_legacy

from blueque.errors import InvalidInput
from blueque.metrics.server import Exporter, open_server
from blueque.recovery.judge import Recovery
from blueque.system import hosts, process

WORK = handlers.WORK

QUICK = ("--beat", "0.2s", "--lease", "0.6s", "--lost-after", "30s")


@pytest.fixture
def named(monkeypatch):
    """Give this machine names as its resolver would."""

    def named(full, short, chosen=None):
        hosts._full_name.cache_clear()
        monkeypatch.setattr(socket, "getfqdn", lambda: full)
        monkeypatch.setattr(socket, "gethostname", lambda: short)
        monkeypatch.delenv(hosts.VARIABLE, raising=False)
        if chosen is not None:
            monkeypatch.setenv(hosts.VARIABLE, chosen)

    yield named
    hosts._full_name.cache_clear()


@pytest.mark.parametrize(
    "full",
    [
        "localhost",
        "Localhost",
        "localhost.localdomain",
        "localhost4.localdomain4",
        "localhost6",
        "ip6-localhost",
        "ip6-loopback",
        "127.0.0.1",
        "10.1.2.3",
        "::1",
        "fe80::1%eth0",
        "1.0.0.127.in-addr.arpa",
        "",
    ],
)
def test_a_full_name_that_other_machines_have_too_gives_way_to_the_short_one(named, full):
    named(full, "gpu-1")

    assert hosts.host_name() == "gpu-1" and process.node_id() == f"gpu-1_{os.getpid()}"


@pytest.mark.parametrize(
    "full", ["gpu-1.example.com", "gpu-1", "localhosts.example.com", "10.example.com", "my_host"]
)
def test_the_host_is_named_as_in_1_0_0_when_that_is_a_name_of_its_own(named, full):
    named(full, "other")

    assert hosts.host_name() == full


@pytest.mark.parametrize(
    "name", ["a", "gpu-1.example.com", "render_farm", "rack_2.example.com", "x" * 253, "10.1.2.3"]
)
def test_a_name_that_is_given_goes_before_what_the_resolver_says(named, name):
    named("full.example.com", "short", name)

    assert hosts.host_name() == name


@pytest.mark.parametrize(
    "name",
    [
        " ",
        "a b",
        "a\nb",
        "a\x1b[31m",
        "-a",
        "a.",
        "_a",
        "a_",
        "gpu_1",
        "a_b_77",
        "a/b",
        "a:b",
        "ada@desk",
        "grün",
        "x" * 254,
    ],
)
def test_a_name_that_a_node_id_cannot_have_is_refused(named, name):
    named("full.example.com", "short", name)

    with pytest.raises(InvalidInput, match="BLUEQUE_HOST: "):
        hosts.host_name()


@pytest.mark.parametrize(
    ("full", "chosen", "host", "is_here"),
    [
        ("gpu-1.example.com", None, "gpu-1.example.com", True),
        ("gpu-1.example.com", "farm", "gpu-1.example.com", True),
        ("gpu-1.example.com", "farm", "farm", False),
        ("gpu-1.example.com", None, "gpu-1", False),
        ("localhost", None, "localhost", False),
        ("localhost", None, "gpu-1", False),
        ("localhost", "localhost", "localhost", True),
    ],
)
def test_a_listener_of_1_0_0_is_on_this_machine_only_under_a_name_that_is_its_alone_or_is_given(
    named, full, chosen, host, is_here
):
    named(full, "gpu-1", chosen)

    assert hosts.is_this_machine(host) is is_here


def test_what_only_people_read_asks_no_name_server(client, named, monkeypatch):
    named("never", "gpu-1")
    monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("the name server was asked"))
    process._producer.cache_clear()
    queue = client.get_queue("video")

    task_id = queue.enqueue("p")
    queue.cancel(task_id)
    open_server(Exporter(list), "0.0.0.0", 0).server_close()

    task = client.get_task(task_id)
    assert task.producer.endswith(f"@gpu-1[{os.getpid()}]") and task.cancelled_by.endswith("@gpu-1")
    assert hosts.has_been_this_machine("gpu-1")
    process._producer.cache_clear()


def test_a_slow_name_server_is_named_once_in_the_log(named, monkeypatch, caplog):
    named("gpu-1.example.com", "gpu-1")
    monkeypatch.setattr(hosts, "SLOW", -1.0)

    assert [hosts.host_name() for _ in range(2)] == ["gpu-1.example.com"] * 2
    (said,) = caplog.messages
    assert "the name of this host; set BLUEQUE_HOST" in said


def test_former_names_of_this_machine_are_its_own_and_others_are_not(named):
    named("localhost", "gpu-1", "render-7")

    known = [
        hosts.has_been_this_machine(name) for name in ("render-7", "gpu-1", "localhost", "gpu-2")
    ]
    assert known == [True, True, True, False]


def test_a_listener_of_1_0_0_called_localhost_is_not_struck_off_by_a_machine_that_has_another_name(
    redis, cli, client, named, monkeypatch
):
    monkeypatch.setattr(process, "sees_all_pids", lambda: True)
    gone = f"localhost_{ended_process()[0].pid}"
    register_legacy(cli, gone)
    hold(redis, cli, "t1", "reserved", gone, token=None)
    judge = Recovery(client.with_patience(0).connections)

    named("localhost", "gpu-1")
    judge.step(["video"])
    assert cli.smembers("blueque_listeners_video") == {gone}
    assert client.get_listener("video").claim_orphan() is None
    named("localhost", "gpu-1", "localhost")
    judge.step(["video"])
    assert cli.smembers("blueque_listeners_video") == set()


def test_a_listener_of_another_machine_with_our_host_name_is_not_judged_by_its_pid(
    redis, cli, client
):
    theirs = f"{hosts.host_name()}_{ended_process()[0].pid}"
    register(redis, node=theirs, lease=60, pid=int(theirs.rpartition("_")[2]))
    hold(redis, cli, "t1", "started", theirs)
    judge = Recovery(client.with_patience(0).connections)

    assert judge.step(["video"]) == [] and client.get_listener("video").claim_orphan() is None
    assert cli.hget(f"blueque_listener_video_{theirs}", "state") == "alive"


def test_a_dead_listener_of_this_machine_under_a_former_host_name_is_claimed_by_proof(
    redis, cli, client
):
    _, identity = ended_process()
    former = f"former-name_{identity['pid']}"
    register(redis, node=former, lease=60, **identity)
    hold(redis, cli, "t1", "reserved", former)

    assert client.get_listener("video").claim_orphan().id == "t1"


def test_without_a_word_the_listener_and_its_tasks_have_the_default_name(programs):
    programs.write(
        """
        import blueque.system.hosts

        def run(task):
            return blueque.system.hosts.host_name()
    """,
        "name.py",
    )
    programs.listener("name:run", environ={hosts.VARIABLE: ""})
    task_id = programs.client.get_queue("work").enqueue("")
    done = ended(programs.client, task_id)
    assert done.result == done.node.rpartition("_")[0] == hosts.default_name()


def test_a_task_process_knows_the_host_by_the_name_of_its_listener(programs):
    programs.write(
        """
        import blueque.system.hosts

        def run(task):
            return blueque.system.hosts.host_name()
    """,
        "name.py",
    )
    programs.listener("name:run", "--host", "render_farm")
    task_id = programs.client.get_queue("work").enqueue("")
    assert ended(programs.client, task_id).result == "render_farm"


@pytest.mark.parametrize(
    ("words", "environ", "toml", "code", "said"),
    [
        (["--host", "a b"], {}, "", 2, "--host: 'a b' is not a host name"),
        (
            [],
            {hosts.VARIABLE: "gpu_1"},
            "",
            78,
            "BLUEQUE_HOST: 'gpu_1' reads as the id of a listener",
        ),
        (
            [],
            {hosts.VARIABLE: ""},
            '[listener]\nhost = "a/b"\n',
            78,
            "listener.host: 'a/b' is not a host name",
        ),
    ],
)
def test_a_listener_does_not_start_under_a_name_that_it_cannot_have(
    programs, words, environ, toml, code, said
):
    (programs.directory / "blueque.toml").write_text(toml)
    refused = programs.listener("work:run", *words, environ=environ, is_awaited=False)
    assert refused.wait() == code
    assert said in refused.log


@pytest.mark.parametrize("module", ["blueque.cli.scheduler", "blueque.cli.main"])
def test_no_program_works_under_a_name_that_a_host_cannot_have(programs, module):
    words = ["queue", "pause", "work"] if module.endswith("main") else []
    command = [sys.executable, "-m", module, *words, "--redis-url", programs.url]
    refused = programs.start(command, environ={hosts.VARIABLE: "a b"})
    assert refused.wait() == 78
    assert "BLUEQUE_HOST: 'a b' is not a host name" in refused.log


def kill_all_but_the_task(listener):
    slots = listener.slots()
    listener.send(signal.SIGKILL)
    listener.wait()
    for pid in slots:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(is_there, slots)), what="the end of the listeners")


def test_a_listener_with_a_new_name_adopts_what_its_spool_holds_under_the_old_one(programs):
    old = programs.listener("work:run", *QUICK, environ={hosts.VARIABLE: "localhost"})
    task = begin(programs)
    assert task.node.startswith("localhost_") and is_there(task.pid)
    kill_all_but_the_task(old)
    programs.listener("work:run", *QUICK, "--host", "gpu-1", slots=2)
    node = has_moved(programs.client, task)
    assert node.startswith("gpu-1_") and is_there(task.pid)
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.pid, done.attempt) == ("complete", "done", task.pid, 1)
    assert done.node == node
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_a_task_whose_listener_finishes_it_under_the_old_name_is_not_adopted_under_a_new_one(
    programs,
):
    old = programs.listener(
        "work:run", *QUICK, environ={hosts.VARIABLE: "localhost"}, on_term="leave"
    )
    task = begin(programs)
    (behind,) = old.slots()
    assert old.stop() == 0 and is_there(behind) and is_there(task.pid)
    new = programs.listener("work:run", *QUICK, "--host", "gpu-1", slots=2, is_awaited=False)
    new.says("each counts as a slot")
    other = begin(programs)  # in the slot that is free, once what can be adopted has been
    assert other.node.startswith("gpu-1_")
    assert owner(programs.client, task.id) == task.node == f"localhost_{behind}"
    let_go(programs)
    assert [ended(programs.client, one.id).result for one in (task, other)] == ["done", "done"]
    assert programs.client.get_task(task.id).node == task.node
    assert len(ledger(programs)) == 2 and not new.lines("adopt ") and is_sound(programs.client)


def test_when_the_listener_under_the_old_name_dies_later_the_new_one_adopts_its_task(programs):
    old = programs.listener(
        "work:run", *QUICK, environ={hosts.VARIABLE: "localhost"}, on_term="leave"
    )
    task = begin(programs)
    (behind,) = old.slots()
    assert old.stop() == 0
    new = programs.listener("work:run", *QUICK, "--host", "gpu-1", slots=2, is_awaited=False)
    new.says("each counts as a slot")
    assert owner(programs.client, task.id) == task.node
    os.kill(behind, signal.SIGKILL)
    assert has_moved(programs.client, task).startswith("gpu-1_")
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.result, done.pid, done.attempt, len(ledger(programs))) == ("done", task.pid, 1, 1)
    assert len(new.lines("adopt ")) == 1 and is_sound(programs.client)


def test_the_files_of_an_attempt_under_a_former_name_of_this_machine_are_found(programs):
    programs.write("def run(task):\n    print('hello')\n", "say.py")
    programs.listener("say:run", "--host", "former-name")
    task_id = programs.client.get_queue("work").enqueue("")
    ended(programs.client, task_id)
    logs = programs.start(
        [
            sys.executable,
            "-m",
            "blueque.cli.main",
            "logs",
            "--all",
            task_id,
            "--redis-url",
            programs.url,
        ]
    )
    assert (logs.wait(), logs.printed.endswith("hello\n")) == (0, True), logs.log
