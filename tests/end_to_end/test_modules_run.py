"""Listeners whose handlers register themselves, in modules that an option, a variable or
blueque.toml names.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from handlers import WORK, begin, ended, has_moved, is_sound, ledger, let_go, pid_of
from running import is_there

from blueque import Retry
from blueque.task_process import registered

FILMS = """
    import os
    import blueque

    with open("imports", "a") as file:
        file.write(f"{__name__} {os.getpid()}\\n")

    @blueque.handler("films", retry=blueque.Retry(max=2, backoff=0), time_limit="1h")
    def film(task, film):
        if film == "bad":
            raise ValueError("no such film")
        made = scene.enqueue({"of": film}, key=task.id)
        return [__name__, task.id, film, made]

    @blueque.handler("scenes")
    async def scene(task):
        return [__name__, task.parameters, os.getpid()]

    def plain(task):
        return "plain"
"""
OTHER = """
    import blueque
    from films import film

    @blueque.handler("sounds", "noises", time_limit="2s", grace=0)
    def sound(task):
        if task.parameters == "wait":
            blueque.current_task().progress(0.5)
            while True:
                pass
        return [__name__, film.queue]
"""


@pytest.fixture
def programs(programs):
    programs.write(FILMS, "films.py")
    programs.write(OTHER, "sounds.py")
    return programs


def run(programs, queue, parameters="", **options):
    made = programs.client.get_queue(queue).enqueue(parameters, **options)
    return ended(programs.client, made)


@pytest.mark.parametrize("option", [("--preload", "films"), ("--reuse", "5")], ids=repr)
def test_a_handler_that_registers_itself_runs_the_tasks_of_its_queue(programs, option):
    listener = programs.listen("films", "scenes", "--module", "films", *option)

    tasks = [run(programs, "films", film) for film in ("Metropolis", "M")]

    assert [task.result[:3] for task in tasks] == [
        ["films", task.id, film] for task, film in zip(tasks, ("Metropolis", "M"), strict=True)
    ]
    made = ended(programs.client, tasks[0].result[3])
    assert (made.queue, made.result[:2]) == ("scenes", ["films", {"of": "Metropolis"}])
    assert "'films' by films:film, 'scenes' by films:scene" in listener.log
    pids = {run(programs, "scenes").result[2] for _ in range(2)}
    assert len(pids) == (1 if "--reuse" in option else 2)


def test_without_a_queue_a_listener_takes_those_that_the_modules_define(programs):
    programs.write("[listener]\nmodules = ['sounds']", "blueque.toml")

    listener = programs.listen()

    for queue in ("sounds", "noises"):
        assert run(programs, queue).result == ["sounds", "films"]
    assert len(listener.lines("register queue=")) == 2


def test_the_handlers_of_a_package_are_those_of_the_modules_that_it_imports(programs):
    (programs.directory / "cinema").mkdir()
    programs.write("from cinema import reels\nimport sounds", "cinema/__init__.py")
    programs.write(
        "import blueque\n@blueque.handler('reels')\ndef reel(task): return __name__",
        "cinema/reels.py",
    )

    listener = programs.listen("--module", "cinema")
    assert run(programs, "reels").result == "cinema.reels"
    assert len(listener.lines("register queue=")) == 1

    # A queue that is named takes what any imported module defines.
    programs.listen("sounds", "--module", "cinema")
    assert run(programs, "sounds").result == ["sounds", "films"]


def test_all_is_imported_once_for_a_look_and_not_in_master_or_listener(programs):
    listener = programs.listen("scenes", "--module", "films", "--no-warm")
    task = run(programs, "scenes", {"a": 1})

    lines = (programs.directory / "imports").read_text().split()
    names, pids = lines[::2], {int(pid) for pid in lines[1::2]}

    assert names == ["films"] * 2 and task.pid in pids and task.result[1] == {"a": 1}
    assert not pids & {listener.pid, pid_of(task.node)}


# What goes before what


@pytest.mark.parametrize(
    ("arguments", "environ", "file"),
    [
        (("films", "--handler", "films:film"), {}, ""),
        (("films",), {"BLUEQUE_HANDLER": "films:film"}, ""),
        (("films",), {}, "[queues.films]\nhandler = 'films:film'"),
        (
            ("films", "scenes"),
            {},
            "[listener]\nmodules = ['films']\n[queues.films]\nhandler = 'films:film'",
        ),
        (
            ("cinema",),
            {},
            "[aliases]\ncinema = 'films'\n[queues.films]\nhandler = 'films:film'\npythonpath = ['.']",
        ),
    ],
    ids=repr,
)
def test_the_settings_of_a_handler_apply_however_it_is_named(programs, arguments, environ, file):
    programs.write(file, "blueque.toml")
    programs.listen(*arguments, environ=environ)

    task = run(programs, "films", "bad")

    assert (task.status, task.attempt) == ("failed", 3)


def test_sighup_takes_the_settings_of_the_handler_as_they_are_by_then(programs):
    listener = programs.listen("films", "--handler", "films:film")
    # longer, so that the bytecode of the same second is not taken for it
    programs.write(FILMS.replace("max=2", "max=1 + 0"), "films.py")

    listener.send(signal.SIGHUP)
    listener.says("replacing 1 listener,")

    assert run(programs, "films", "bad").attempt == 2


def test_run_and_modules_on_the_command_line_are_refused_and_a_variable_is_overruled(programs):
    code, log = programs.run_to_end("films", "--handler", "films:plain", "--module", "films")
    assert code == 2 and "--handler and --module are both given" in log

    both = {"BLUEQUE_HANDLER": "films:plain", "BLUEQUE_MODULES": "films"}
    code, log = programs.run_to_end("films", environ=both)
    assert code == 78 and "BLUEQUE_HANDLER and BLUEQUE_MODULES are both set" in log

    modules = {"BLUEQUE_MODULES": "no.such.module"}
    programs.listen("films", "--handler", "films:plain", environ=modules)
    assert run(programs, "films").result == "plain"


def policy_of(programs, queue, node):
    return Retry.parse(programs.client.get_inspector().registration(queue, node).get("retry"))


def test_what_the_decorator_says_goes_before_the_listener_and_after_the_table_of_the_queue(
    programs,
):
    programs.write(
        "[listener]\nmodules = ['films', 'sounds']\nretry = 7\ntime_limit = '2h'", "blueque.toml"
    )
    programs.listen("films", "scenes", "sounds")
    bad, limited = run(programs, "films", "bad"), run(programs, "sounds", "wait", retry=0)
    assert (bad.status, bad.attempt, bad.error_type) == ("failed", 3, "ValueError")
    assert (limited.status, limited.error_type) == ("failed", "time_limit")
    assert policy_of(programs, "films", bad.node) == Retry(max=2, backoff=0)
    assert policy_of(programs, "scenes", bad.node) == Retry(max=7)
    assert run(programs, "films", "bad", retry=0).attempt == 1


def test_the_table_of_a_queue_goes_before_the_decorator_and_an_option_before_both(programs):
    programs.write("[queues.films]\nretry = false\n[queues.sounds]\ngrace = '1s'", "blueque.toml")
    listener = programs.listen("films", "--module", "films")
    assert run(programs, "films", "bad").attempt == 1
    assert listener.lines(
        "queue 'films': the decorator of films:film is not used for retry: "
        "[queues.films] in blueque.toml sets another value"
    )

    limited = ("--time-limit", "0.1", "--retry", "0")
    listener = programs.listen("sounds", "--handler", "sounds:sound", *limited)
    task = run(programs, "sounds", "wait")
    assert "0.1" in task.error and task.attempt == 1
    assert listener.lines(
        "queue 'sounds': the decorator of sounds:sound is not used for time_limit: "
        "an option or a variable wins"
    )


def test_a_handler_of_another_queue_runs_without_its_settings_and_the_listener_says_so(programs):
    listener = programs.listen("any", "--handler", "films:film")

    assert run(programs, "any", "M").result[:3:2] == ["films", "M"]
    assert run(programs, "any", "bad").attempt == 1
    assert listener.lines(
        "queue 'any': the decorator of films:film is not used for retry, time_limit: "
        "it is the handler of queue 'films'"
    )


TYPED = """
    from __future__ import annotations
    import dataclasses
    from pathlib import Path
    import blueque

    @dataclasses.dataclass
    class Film:
        path: Path
        minutes: int

    @blueque.handler("typed", retry=3)
    def longer(task, film: Film) -> Film:
        print("called")
        return Film(film.path.with_suffix(".avi"), film.minutes + 1)
"""


def test_parameters_and_results_have_the_annotated_classes_at_both_ends(programs, monkeypatch):
    path = programs.write(TYPED, "typed.py")
    programs.listen("typed", "--module", "typed")
    monkeypatch.setattr(registered, "registered", [])
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setitem(sys.modules, "typed", None)  # so that it is as before afterwards
    del sys.modules["typed"]
    from typed import Film, longer

    made = longer.enqueue(Film(Path("a.mov"), 90), client=programs.client)
    wrong = run(programs, "typed", {"path": "a.mov", "minutes": "90"})

    assert programs.client.wait(made, timeout=30).result == Film(Path("a.avi"), 91)
    sentence = "parameters.minutes: expected int, got str"
    assert (wrong.error, wrong.error_type, wrong.attempt) == (sentence, "InvalidType", 1)
    lines, _ = programs.client.get_log(wrong.id)
    assert lines == []


# Mistakes


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (
            "import films\nimport blueque\n@blueque.handler('films')\ndef run(task): pass",
            ("films",),
            "queue 'films' has two handlers: films:film (line 7) and bad:run (line 3)",
        ),
        (
            "import blueque\n@blueque.handler('films')\ndef run(task, film: 'Film'): pass",
            ("films",),
            "the handler bad:run of queue 'films' cannot be used: the annotations of bad:run name 'Film', and its module "
            "does not have that when it runs: define or import it there, outside of functions and of `if TYPE_CHECKING`",
        ),
        (
            "import blueque\n@blueque.handler('a')\ndef run(task): pass\n"
            "@blueque.handler('b')\ndef run(task): pass",
            ("a",),
            "the handler bad:run (line 2) of queue 'a' has no name at the top of its module, "
            "or another object has taken that name",
        ),
        (
            "import blueque\n@blueque.handler('a')\ndef run(task): yield",
            ("a",),
            "the handler bad:run of queue 'a' is a generator function (it has a yield): "
            "a handler runs to its end and returns the result",
        ),
        (
            "import blueque\n@blueque.handler('a', retry='x')\ndef run(task): pass",
            ("a",),
            "cannot import the module bad: retry is a blueque.Retry, a number of retries, "
            "or False for none, not str",
        ),
        (
            "import nothing",
            ("a",),
            "cannot import the module bad: ModuleNotFoundError: No module named 'nothing' "
            "({file}, line 1)",
        ),
        ("import os; os._exit(4)", ("a",), "cannot import the module bad: exit code 4"),
        ("", (), "the module bad defines no handler"),
        ("", ("a",), "queue 'a' has no handler in bad. Name a callable or a program in one of"),
    ],
    ids=["two", "annotation", "renamed", "generator", "option", "import", "exit", "none", "queue"],
)
def test_a_mistake_in_a_module_is_one_sentence_at_the_start(programs, text, arguments, said):
    path = programs.write(text, "bad.py")

    code, log = programs.run_to_end(*arguments, "--module", "bad")

    assert (code, log.splitlines()[0]) == (78, f"blueque-listener: {said.format(file=path)}") or (
        code == 78 and "Name a callable" in said and said in log
    )


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "said"),
    [
        ((), {}, 2, "QUEUE is missing: name a queue, or modules with handlers"),
        (("--module", "films.py"), {}, 2, "'films.py' is not the name of a module: write films"),
        (("--module", "a-b"), {}, 2, "'a-b' is not the name of a module, such as mypackage.tasks"),
        ((), {"BLUEQUE_MODULES": "x/y.py"}, 78, "BLUEQUE_MODULES: 'x/y.py' is not the name of a"),
        (("--module", "nothing"), {}, 78, "cannot import the module nothing: ModuleNotFoundError"),
    ],
)
def test_what_is_no_module_is_refused(programs, arguments, environ, code, said):
    refusal = programs.run_to_end(*arguments, environ=environ)

    assert refusal[0] == code and said in refusal[1]


# Later


def test_sighup_takes_what_the_modules_define_by_then(programs):
    listener = programs.listen("--module", "sounds")
    programs.write(OTHER.replace('"sounds"', '"noise"'), "sounds.py")

    listener.send(signal.SIGHUP)
    listener.says("register queue=noise")
    assert run(programs, "noise").result == ["sounds", "films"]

    programs.write("import blueque\nblueque.handler()", "sounds.py")
    listener.send(signal.SIGHUP)
    listener.says("nothing changes")
    assert listener.lines("cannot import the module sounds: TypeError: handler() missing")


def test_a_task_of_a_handler_that_has_registered_itself_is_adopted(programs):
    programs.write(f"{WORK}\n    import blueque\n    run = blueque.handler('work')(run)\n")
    programs.listen("work", "--module", "work")
    task = begin(programs)
    os.kill(pid_of(task.node), signal.SIGKILL)

    has_moved(programs.client, task)
    assert is_there(task.pid)
    let_go(programs)

    assert ended(programs.client, task.id).result == "done"
    assert [one.attempt for one in ledger(programs, task.id)] == [1] and is_sound(programs.client)
