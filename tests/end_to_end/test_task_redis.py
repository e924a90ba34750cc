"""Which tasks may connect to the Redis of their listener, and where its password must not be."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import forked
import pytest
from handlers import ended
from running import LISTENER, Programs, children_of, clean_environment, keeper_of, until

from blueque import Client
from blueque.node.reload import ANSWER_TO
from blueque.protocol import permissions

PASSWORD = "geheim-0815"
WORK = """
    import json, os, subprocess, sys
    from pathlib import Path

    import blueque

    MADE_AT_IMPORT = blueque.Client()

    def enqueue_next(task):
        first = blueque.Client().get_queue("next").enqueue({"made": "in the call"})
        second = MADE_AT_IMPORT.get_queue("next").enqueue({"made": "at the import"})
        print("enqueued", first, second)
        return [first, second]

    def look(task):
        own = dict(os.environ)
        child = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
        exposed = Path("/proc/self/environ").read_text() + Path("/proc/self/cmdline").read_text()
        return json.dumps([own, child, exposed])

    def url(task):
        return blueque.Client().url

    def urls(task):
        os.environ["BLUEQUE_REDIS_URL"] = "redis://set-by-the-handler/0"
        return [blueque.Client().url, blueque.Client("redis://argument/0").url]

    def use_clients(task):
        client = task.client
        made = client.get_queue("next").enqueue("", key=task.id)
        assert client is task.client and task.spawn("next", "", key="a").is_new
        both = [client, blueque.Client()]
        return [made, client.url, *[each.connections.read(("CLIENT", "ID"))[0] for each in both]]
"""


@pytest.fixture
def programs(url, cli, tmp_path):
    """What connects as a user with a password."""
    cli.acl_setuser(
        "ada",
        enabled=True,
        passwords=[f"+{PASSWORD}"],
        keys=["*"],
        channels=["*"],
        categories=["+@all"],
    )
    with Programs(url.replace("redis://", f"redis://ada:{PASSWORD}@"), tmp_path) as programs:
        programs.write(WORK)
        yield programs
    cli.acl_deluser("ada")


def run(programs, queue="work"):
    task = ended(programs.client, programs.client.get_queue(queue).enqueue(""))
    assert task.status == "complete", task.error
    return task


@pytest.mark.parametrize("option", [(), ("--preload", "work"), ("--no-warm",)], ids=repr)
def test_a_handler_enqueues_the_next_task_without_an_address(programs, option):
    programs.listener("work:enqueue_next", *option)

    task = run(programs)

    made = [programs.client.get_task(task_id).parameters["made"] for task_id in task.result]
    assert made == ["in the call", "at the import"]


def contents(directory: Path) -> dict[Path, bytes]:
    """Return what the files in the directory have, but for what is renamed meanwhile."""
    found = {}
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            found[path] = path.read_bytes()
    return found


@pytest.mark.parametrize("place", ["option", "variables", "file"])
def test_the_password_is_in_no_environment_no_file_no_log_and_no_record(programs, cli, place):
    command = [*LISTENER, "look", "--spool", "spool", "--handler", "work:look"]
    variables = dict.fromkeys(("BLUEQUE_REDIS_URL", "REDIS_URL"), programs.url)
    environ = variables if place == "variables" else {}
    if place == "file":
        programs.write(f'redis_url = "{programs.url}"', "blueque.toml", 0o600)
    listener = programs.start(
        [*command, *(("--redis-url", programs.url) if place == "option" else ())], environ=environ
    )
    listener.says("register queue=look")

    task = run(programs, "look")

    shown = forked.run(
        ["show", task.id, "--json"], clean_environment() | {"BLUEQUE_REDIS_URL": programs.url}
    ).stdout
    own, child, exposed = json.loads(task.result)
    assert "BLUEQUE_TASK_ID" in own and "BLUEQUE_TASK_ID=" in child and "\0" in exposed
    for text in (
        task.result,
        listener.log,
        listener.printed,
        shown,
        json.dumps(cli.hgetall(f"blueque_task_{task.id}")),
    ):
        assert PASSWORD not in text and "geheim" not in text
    files = contents(programs.directory / "spool")
    assert any(path.name == "exit" for path in files)
    assert not [path for path, content in files.items() if PASSWORD.encode() in content]
    (slot,) = children_of(listener.pid)
    (spare,) = until(
        lambda: len(found := children_of(slot)) == 1 and found, what="the next process alone"
    )
    for pid in (listener.pid, slot, keeper_of(slot), spare):
        assert (
            PASSWORD
            not in Path(f"/proc/{pid}/environ").read_text()
            + Path(f"/proc/{pid}/cmdline").read_text()
        )


def test_the_password_is_in_no_environment_when_the_configuration_is_reloaded(programs):
    programs.write("""
        from pathlib import Path

        with open("seen", "ab") as file:
            file.write(Path("/proc/self/environ").read_bytes() + b"\\n")

        def run(task):
            return 1
    """)
    listener = programs.listener("work:run", "--no-warm")
    (slot,) = listener.slots()

    listener.send(signal.SIGHUP)
    until(lambda: listener.slots() not in ([], [slot]), what="a new slot")

    first, again = (programs.directory / "seen").read_bytes().splitlines()
    assert ANSWER_TO.encode() in again and ANSWER_TO.encode() not in first
    shown = [Path(f"/proc/{listener.pid}/{name}").read_bytes() for name in ("environ", "cmdline")]
    assert PASSWORD.encode() not in b"".join([first, again, *shown])
    assert run(programs).result == 1  # the new slot has the address


@pytest.mark.parametrize(("option", "processes"), [((), 2), (("--reuse", "3"), 1)])
def test_the_clients_of_a_task_have_the_address_of_its_listener_and_connections_of_its_own(
    programs, cli, option, processes
):
    programs.listener("work:use_clients", *option, environ={"REDIS_URL": "redis://other/0"})
    before = {int(client["id"]) for client in cli.client_list()}

    tasks = [run(programs), run(programs)]

    assert len({task.pid for task in tasks}) == processes
    made, urls, *pairs = zip(*(task.result for task in tasks), strict=True)
    assert {programs.client.get_task(task_id).queue for task_id in made} == {"next"}
    numbers = {number for pair in pairs for number in pair}
    assert {*urls} == {programs.url} and len(numbers - before) == 4
    assert not {*pairs[0]} & {int(client["id"]) for client in cli.client_list()}, "it is not closed"


def test_the_address_of_the_listener_goes_before_the_environment_and_an_argument_before_both(
    programs,
):
    programs.listener("work:urls", environ={"REDIS_URL": "redis://elsewhere/0"})

    assert run(programs).result == [programs.url, "redis://argument/0"]


@pytest.mark.parametrize(
    ("option", "variable", "file", "of_program", "of_callable"),
    [
        ((), {}, "", "nothing", "{ours}"),
        (("--task-redis",), {}, "", "{ours}", "{ours}"),
        ((), {}, "true", "{ours}", "{ours}"),
        ((), {}, '"{theirs}"', "{theirs}", "{theirs}"),
        ((), {"BLUEQUE_TASK_REDIS": "false"}, "", "nothing", "redis://localhost:6379/0"),
    ],
)
def test_tasks_get_the_address_that_their_listener_says(
    programs, url, option, variable, file, of_program, of_callable
):
    addresses = {"ours": programs.url, "theirs": url.replace("redis://", "redis://task:pw@")}
    if file:
        text = f"[listener]\ntask_redis = {file.format(**addresses)}"
        programs.write(text, "blueque.toml", 0o600)
    environ = {"BLUEQUE_REDIS_URL": programs.url, **variable}
    program = ("--exec", "sh", "-c", 'echo "${BLUEQUE_REDIS_URL-nothing}"')
    programs.listener(*option, *program, queue="program", environ=environ)
    programs.listener("work:url", *option, environ=environ)

    assert run(programs, "program").result == of_program.format(**addresses)
    assert run(programs).result == of_callable.format(**addresses)


def test_outside_of_a_task_nothing_is_different(url, monkeypatch):
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    assert Client().url == url
    assert Client("redis://other/1").url == "redis://other/1"


def test_tasks_can_have_the_user_of_a_producer(programs, cli, url, rules_of):
    rules = permissions.rules(["producer"], rules_of)
    cli.execute_command("ACL", "SETUSER", "task", "reset", "on", ">pw", *rules)
    theirs = url.replace("redis://", "redis://task:pw@")
    programs.write(f'[listener]\ntask_redis = "{theirs}"', "blueque.toml")
    programs.listener("work:enqueue_next")

    run(programs)

    assert programs.client.get_inspector().pending("next") == 2
    shown = forked.run(["config"], clean_environment(), cwd=programs.directory)
    assert "task:***@" in shown.stdout and "pw" not in shown.stdout
    cli.acl_deluser("task")
