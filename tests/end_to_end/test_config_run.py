"""blueque.toml as programs read it, and what is different for it."""

from __future__ import annotations

import inspect
import re
import time
from pathlib import Path

import forked
import handlers
import pytest
from handlers import begin, ended, is_sound, ledger
from running import clean_environment, until

from blueque import Client, Config, ConfigRefused, Retry
from blueque.model import keys
from blueque.settings.file import load, parse
from blueque.settings.table import TABLES, variable
from blueque.task_process import running_task

WORK = handlers.WORK

DOCUMENT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()


@pytest.fixture
def run(url, tmp_path):
    """Run a program of ours in a directory of its own, to its end."""

    def run(program, *arguments, environ=None):
        own = {**clean_environment(), "BLUEQUE_REDIS_URL": url, **(environ or {})}
        return forked.run(arguments, own, program=program, cwd=tmp_path)

    return run


# The table


def test_no_variable_of_a_setting_is_one_that_a_task_gets():
    given = set(re.findall(r'"(BLUEQUE_[A-Z_]+)"', inspect.getsource(running_task)))
    assert "BLUEQUE_QUEUE" in given
    tables = ("listener", "scheduler")
    assert not {variable(table, row.key) for table in tables for row in TABLES[table]} & given


def test_the_mistake_in_the_document_is_told_as_it_stands_there():
    (shown,) = re.findall(r"blueque-listener: /etc/blueque/blueque\.toml: (.*)", DOCUMENT)
    with pytest.raises(ConfigRefused) as caught:
        parse('[queues."render.4k"]\nwieght = 100')
    assert str(caught.value) == f"blueque.toml: {shown}"


# Listeners


def test_what_the_file_says_of_the_listener_is_done_and_an_option_goes_before_it(programs):
    programs.write(
        '[listener]\nslots = 2\nselect = "round-robin"\nkeep = "1h"\nbeat = "0.5s"\nlease = "5s"',
        "blueque.toml",
    )
    listener = programs.listen("A", "B", "--handler", "work:run")
    listener.says("2 queues (round-robin) 'A', 'B', work:run, 2 slots")
    assert "configuration blueque.toml" in listener.log
    inspector = programs.client.get_inspector()
    until(lambda: len(inspector.listeners("B")) == 2, what="two slots")
    known = inspector.registration("B", inspector.listeners("B")[0])
    assert (known["beat_every"], known["lease"], known["lost_after"]) == ("0.5", "5.0", "600.0")
    options = ("--slots", "1", "--select", "ordered", "--beat", "1s", "--handler", "work:run")
    other = programs.listen("A", "B", *options, environ={"BLUEQUE_LEASE": "4s"})
    other.says("2 queues (ordered) 'A', 'B', work:run, 1 slot,")
    other.says("register queue=B")
    node = re.search(r"register queue=B node=(\S+)", other.log)[1]
    known = inspector.registration("B", node)
    assert (known["beat_every"], known["lease"]) == ("1.0", "4.0")


def test_each_queue_has_its_own_policy_and_limits_and_what_is_not_said_is_as_for_the_listener(
    programs,
):
    programs.write(
        """
        [listener]
        retry = 1
        grace = 0
        [queues.short]
        time_limit = 0.3
        retry = false
        [queues.again]
        retry = { max = 2, backoff = 0 }
        """,
        "blueque.toml",
    )
    programs.listener("work:run", "again", "plain", "--grace", "0", queue="short")
    client = programs.client
    limited = client.get_queue("short").enqueue("wait")
    assert ended(client, limited).error_type == "time_limit"
    assert [run.attempt for run in ledger(programs, limited)] == [1]
    again = client.get_queue("again").enqueue("fail")
    assert ended(client, again).status == "failed"
    assert [run.attempt for run in ledger(programs, again)] == [1, 2, 3]
    plain = begin(programs, queue="plain")
    known = client.get_inspector().registration("plain", plain.node)
    assert Retry.parse(known["retry"]) == Retry(max=1)
    assert "retry" not in client.get_inspector().registration("short", plain.node)
    assert Retry.parse(client.get_inspector().registration("again", plain.node)["retry"]) == Retry(
        max=2, backoff=0
    )


def test_a_listener_keeps_the_numbers_of_a_day_as_long_as_the_file_says(programs, cli):
    programs.write('[statistics]\nkeep = "3d"\n', "blueque.toml")
    programs.listener("work:run", queue="A")
    ended(programs.client, programs.client.get_queue("A").enqueue("quick"))

    (key,) = cli.keys(keys.stats("A", "*"))

    assert 3 * 86400 - 60 <= cli.ttl(key) <= 4 * 86400


def test_a_listener_deletes_what_has_been_kept_long_enough(programs, cli):
    programs.write("[queues.A]\nretention = { complete = '0.5s' }\n", "blueque.toml")
    programs.listener("work:run", "B", "--beat", "0.2s", "--lease", "5s", queue="A")
    client = programs.client
    first, other = client.get_queue("A").enqueue("quick"), client.get_queue("B").enqueue("quick")
    ended(client, other)
    until(lambda: client.get_task(first).status is None, what="its deletion")
    assert cli.exists("blueque_complete_tasks_A") == 0
    failed = client.get_queue("A").enqueue("fail")
    ended(client, failed)
    later = client.get_queue("A").enqueue("quick")
    until(
        lambda: ledger(programs, later) and client.get_task(later).status is None,
        what="the deletion of a later one",
    )
    assert client.get_task(failed).status == "failed"
    assert client.get_task(other).status == "complete"
    assert is_sound(client)


def test_a_listener_holds_the_spool_and_what_tasks_print_to_their_limits(programs):
    programs.write("""
        def run(task):
            for number in range(500):
                print("x" * 8191)
    """)
    first = programs.listener("work:run", "--log-limit", "1MiB", queue="A")
    done = ended(programs.client, programs.client.get_queue("A").enqueue(""))
    printed = programs.directory / "spool" / f"{done.id}@1" / "stdout"
    assert printed.stat().st_size == 500 * 8192
    until(lambda: printed.stat().st_blocks * 512 <= 2**20, what="the middle to go")
    first.stop()
    programs.write("[listener]\nspool_limit = 1", "blueque.toml")
    programs.listener("work:run", queue="A").says("prune spool=")
    assert not printed.parent.exists()
    third = programs.listener("work:run", "--spool-limit", "none", queue="A", is_awaited=False)
    assert third.wait() == 2 and "'none' is not a size" in third.log


# All programs


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("listener", ("work", "--exec", "true")),
        ("scheduler", ()),
        ("main", ("status",)),
        ("main", ("enqueue", "work", "1")),
        ("main", ("config",)),
    ],
)
def test_a_mistake_ends_every_program_with_one_sentence_and_exit_code_78(
    run, tmp_path, program, arguments
):
    (tmp_path / "blueque.toml").write_text("[queues.work]\n\nwieght = 1")
    result = run(program, *arguments)
    assert (result.returncode, result.stdout) == (78, "")
    assert result.stderr.partition(": ")[2] == (
        "blueque.toml: queues.work.wieght: unknown key; did you mean weight?\n"
    )


def test_a_time_in_the_file_that_does_not_fit_one_from_elsewhere_is_told_to_be_from_there(
    run, tmp_path
):
    (tmp_path / "blueque.toml").write_text("[listener]\nlease = '20s'")
    result = run("listener", "A", "--handler", "work:run")
    assert result.returncode == 78
    assert (
        "lease is 20 s: at least three beats of 10 s are needed, 30 s (lease from blueque.toml)"
        in result.stderr
    )


def test_the_file_is_the_one_that_an_option_names_or_else_the_environment(run, tmp_path):
    (tmp_path / "blueque.toml").write_text("here = 1")
    (tmp_path / "other.toml").write_text("there = 1")
    assert "other.toml: there" in run("main", "--config", "other.toml", "status").stderr
    assert (
        "other.toml: there"
        in run("main", "status", environ={"BLUEQUE_CONFIG": "other.toml"}).stderr
    )
    assert "blueque.toml: here" in run("main", "status").stderr
    assert run("main", "status", environ={"BLUEQUE_CONFIG": "/dev/null"}).returncode == 0
    assert (
        "none.toml: cannot be read: No such file"
        in run("main", "--config", "none.toml", "status").stderr
    )


def test_the_address_in_the_file_comes_after_the_environment(run, tmp_path, url):
    (tmp_path / "blueque.toml").write_text(f'redis_url = "{url}"')
    assert run("main", "status", environ={"BLUEQUE_REDIS_URL": ""}).returncode == 0
    (tmp_path / "blueque.toml").write_text('redis_url = "redis://127.0.0.1:1/0"')
    assert run("main", "status").returncode == 0
    result = run("main", "ls", environ={"BLUEQUE_REDIS_URL": ""})
    assert result.returncode == 69 and "The address is from blueque.toml" in result.stderr


# Producers

CONFIG = parse("""
[queues.video]
retry = 2
time_limit = "1h"
memory_limit = "1GiB"
resources = { gpu = 1 }
[queues.audio]
retry = false
""")


def options_of(task):
    names = ("retry", "time_limit", "memory_limit", "needs")
    return {name: task.fields[name] for name in names if name in task.fields}


@pytest.fixture
def producer(url):
    client = Client(url, config=CONFIG)
    yield client
    client.close()


def test_a_client_that_knows_the_file_gives_tasks_what_it_says_of_their_queue(producer):
    queue = producer.get_queue("video")
    said = {
        "retry": '{"max":2}',
        "time_limit": "3600",
        "memory_limit": str(2**30),
        "needs": "gpu=1",
    }
    assert options_of(producer.get_task(queue.enqueue("in"))) == said
    assert options_of(producer.get_task(queue.schedule("in", time.time() + 100))) == said
    (ids,) = queue.enqueue_iter(["in"])
    assert options_of(producer.get_task(ids[0])) == said
    assert options_of(producer.get_task(producer.get_queue("audio").enqueue("in"))) == {
        "retry": "null"
    }
    assert options_of(producer.get_task(producer.get_queue("text").enqueue("in"))) == {}


def test_what_a_call_says_goes_before_the_file(producer):
    queue = producer.get_queue("video")
    task = producer.get_task(queue.enqueue("in", retry=False, time_limit=1, resources={}))
    assert options_of(task) == {"retry": "null", "time_limit": "1", "memory_limit": str(2**30)}
    own = producer.get_queue("video", retry=Retry(max=9))
    assert (
        options_of(producer.get_task(own.enqueue("in", resources={"gpu": 2})))["retry"]
        == '{"max":9}'
    )


def test_a_client_without_the_file_knows_nothing_of_it(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blueque.toml").write_text("[queues.video]\nretry = 2")
    assert options_of(client.get_task(client.get_queue("video").enqueue("in"))) == {}


def test_a_client_takes_a_path_and_its_address_and_limit_too(tmp_path, url, monkeypatch):
    for name in ("BLUEQUE_REDIS_URL", "REDIS_URL", "BLUEQUE_MAX_BYTES"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "blueque.toml"
    path.write_text(f'redis_url = "{url}"\nmax_bytes = 100\n[queues.video]\nretry = 2')
    for config in (path, str(path), load(path)):
        client = Client(config=config)
        task = client.get_task(client.get_queue("video").enqueue("in"))
        assert (task.fields["retry"], client.max_bytes) == ('{"max":2}', 100)
        client.close()
    assert Client(url, max_bytes=5, config=Config(max_bytes=7)).max_bytes == 5


def test_blueque_enqueue_reads_the_file(run, tmp_path, client):
    (tmp_path / "blueque.toml").write_text(
        "[queues.video]\nretry = 2\nresources = { gpu = 1 }\ntime_limit = 60"
    )
    task_id = run("main", "enqueue", "video", "1").stdout.strip()
    assert options_of(client.get_task(task_id)) == {
        "retry": '{"max":2}',
        "time_limit": "60",
        "needs": "gpu=1",
    }
    task_id = run(
        "main", "enqueue", "video", "1", "--retry", "1", "--resource", "gpu=2"
    ).stdout.strip()
    assert options_of(client.get_task(task_id)) == {
        "retry": '{"max":1}',
        "time_limit": "60",
        "needs": "gpu=2",
    }
