"""Where a listener finds its handlers: the command line, variables, blueque.toml."""

from __future__ import annotations

import signal

import pytest
from handlers import ended
from running import children_of, clean_environment, until

WORK = """
    import os, time
    from pathlib import Path

    def note(name):
        ledger = os.open("imports", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{name} {os.getpid()}\\n".encode())
        os.close(ledger)

    note(__name__)

    def run(task):
        print("running")
        return [__name__, task.queue, os.getpid()]

    def environment(task):
        return {name: value for name, value in os.environ.items() if name.startswith("BLUEQUE_")}
"""
FILE = """
    [listener]
    handler = "first:run"
    [queues.b]
    handler = "second:run"
    [queues.c]
    exec = ["sh", "-c", "echo program $BLUEQUE_QUEUE"]
    [queues.d]
    exec = "sh -c 'echo words $BLUEQUE_QUEUE'"
"""


@pytest.fixture
def programs(programs):
    for name in ("first.py", "second.py", "third.py"):
        programs.write(WORK, name)
    return programs


def results(programs, *queues):
    """Run a task in each queue, one after the other, and return their results."""
    tasks = [
        ended(programs.client, programs.client.get_queue(queue).enqueue("")) for queue in queues
    ]
    assert [task.status for task in tasks] == ["complete"] * len(tasks), [
        task.error for task in tasks
    ]
    return [task.result[:2] if isinstance(task.result, list) else task.result for task in tasks]


def imports(programs):
    """Return which module was imported by which process, in their order."""
    return [
        tuple(line.split()) for line in (programs.directory / "imports").read_text().splitlines()
    ]


def test_modules_of_the_user_that_have_names_of_the_standard_library_keep_no_task_from_running(
    programs, queue
):
    programs.write("def run(task): raise ValueError(task.parameters)")
    for name in ("inspect", "ast", "token", "difflib", "tarfile", "tempfile", "traceback"):
        programs.write("raise RuntimeError('this is not the one of Python')", f"{name}.py")
    programs.listener("work:run")

    assert ended(programs.client, queue.enqueue("7")).error == "ValueError: 7"


# Each queue its own


@pytest.mark.parametrize("option", [(), ("--no-warm",)], ids=repr)
def test_each_queue_of_a_listener_has_the_handler_that_the_file_names(programs, option):
    programs.write(FILE, "blueque.toml")
    listener = programs.listen("a", "b", "c", "d", *option)

    found = results(programs, "a", "b", "c", "d", "b", "b", "a", "a", "b", "d")

    kinds = {"a": ["first", "a"], "b": ["second", "b"], "c": "program c", "d": "words d"}
    assert found == [kinds[queue] for queue in "abcdbbaabd"]
    assert "'a' by first:run, 'b' by second:run, 'c' by sh -c " in listener.log


def test_no_task_runs_in_a_process_that_has_imported_the_handler_of_another_queue(programs):
    programs.write(FILE, "blueque.toml")
    listener = programs.listen("a", "b")
    results(programs, "a", "a")
    (slot,) = until(
        lambda: [pid for pid in children_of(listener.pid) if children_of(pid)],
        what="a spare process",
    )

    def warm():
        spares = {str(pid) for pid in children_of(slot)}
        return [pid for name, pid in imports(programs) if name == "first" and pid in spares]

    until(warm, what="the import of a spare process")

    task = ended(programs.client, programs.client.get_queue("b").enqueue(""))

    assert (task.status, task.result[0]) == ("complete", "second")
    assert [name for name, pid in imports(programs) if int(pid) == task.pid] == ["second"]


def test_queues_that_alternate_import_nothing_ahead(programs):
    programs.write(FILE, "blueque.toml")
    programs.listen("a", "b")

    tasks = [
        ended(programs.client, programs.client.get_queue(queue).enqueue("")) for queue in "bababa"
    ]

    pids = {str(task.pid) for task in tasks}
    checked = 2  # at the start, each in a throw-away child
    assert {pid for _, pid in imports(programs)[checked:]} == pids


# Which goes before which


def test_a_program_in_a_variable_is_split_as_by_a_shell_and_nothing_is_expanded(programs):
    programs.listen("a", environ={"BLUEQUE_EXEC": """printf '%s|' "two words" $HOME"""})

    assert results(programs, "a") == ["two words|$HOME|"]


def test_sighup_has_the_listener_take_another_handler_from_the_file(programs):
    programs.write("[queues.a]\nhandler = 'first:run'", "blueque.toml")
    listener = programs.listen("a", environ={"BLUEQUE_GRACE": "7s"})
    assert results(programs, "a") == [["first", "a"]]

    programs.write("[queues.a]\nhandler = 'second:run'", "blueque.toml")
    listener.send(signal.SIGHUP)
    listener.says("replacing 1 listener,")
    until(lambda: listener.log.count("register queue=a") == 2, what="the next listener")

    assert results(programs, "a") == [["second", "a"]]


# Mistakes


def test_a_queue_without_a_handler_ends_the_listener_with_the_three_ways_to_name_one(programs):
    programs.write("[queues.a]\nhandler = 'first:run'", "blueque.toml")

    code, log = programs.run_to_end("a", "render.4k")

    assert code == 78
    assert "queue 'render.4k' has no handler" in log
    file = '[queues."render.4k"] or in [listener]'
    for way in ("--handler MODULE:CALLABLE, or --exec", file, "BLUEQUE_HANDLER=", "BLUEQUE_EXEC="):
        assert way in log


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "said"),
    [
        (
            ("--handler", "first:run", "--exec", "true"),
            {},
            2,
            "--handler and --exec are both given",
        ),
        (
            (),
            {"BLUEQUE_HANDLER": "first:run", "BLUEQUE_EXEC": "true"},
            78,
            "BLUEQUE_HANDLER and BLUEQUE_EXEC are both set",
        ),
        (
            (),
            {"BLUEQUE_EXEC": "echo 'x"},
            78,
            'BLUEQUE_EXEC: "echo \'x" is not a program and its arguments: no closing',
        ),
        ((), {"BLUEQUE_EXEC": "no-such-program"}, 78, "cannot run 'no-such-program'"),
        ((), {"BLUEQUE_HANDLER": "first"}, 78, "'first' is not of the form"),
        (("--handler", "first"), {}, 2, "for a module of decorated handlers: --module first"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_at_the_start(programs, arguments, environ, code, said):
    refusal = programs.run_to_end("a", *arguments, environ=environ)

    assert refusal[0] == code and said in refusal[1]


def test_a_mistake_in_the_file_is_told_before_what_is_missing_on_the_command_line(programs):
    programs.write("[listener]\nslotz = 3", "blueque.toml")

    code, log = programs.run_to_end("a")

    assert (code, log.partition(": ")[2]) == (
        78,
        "blueque.toml: listener.slotz: unknown key; did you mean slots?\n",
    )


def test_each_handler_is_tried_at_the_start_and_the_queue_of_one_that_breaks_is_named(programs):
    programs.write(
        "[queues.a]\nhandler = 'first:run'\n[queues.b]\nhandler = 'second:nothing'", "blueque.toml"
    )

    code, log = programs.run_to_end("a", "b")

    assert code == 78
    assert "queue 'b': cannot import the handler second:nothing: second has no 'nothing'" in log


# What a task sees of it


def test_a_task_inherits_no_variable_that_is_an_option_of_its_listener(programs):
    environ = {
        "BLUEQUE_HANDLER": "first:environment",
        "BLUEQUE_SLOTS": "2",
        "BLUEQUE_TIME_LIMIT": "1h",
        "BLUEQUE_RETRY": "1",
        "BLUEQUE_KEEP": "1d",
        "BLUEQUE_BEAT": "5s",
    }
    listener = programs.listen("a", environ=environ)
    assert ", 2 slots" in listener.log

    task = ended(programs.client, programs.client.get_queue("a").enqueue(""))

    assert task.status == "complete"
    assert {*environ} & {*task.result} == {"BLUEQUE_BEAT"}
    assert clean_environment().keys() & environ.keys() == set()


def test_a_name_that_looks_like_a_pattern_is_told_to_be_a_name(programs):
    listener = programs.listen("render.*", "--handler", "first:run")

    assert "'render.*' is the name of one queue, not a pattern" in listener.log
    assert results(programs, "render.*") == [["first", "render.*"]]
