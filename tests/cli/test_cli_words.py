"""What the program says of words, of verbs that it has not, and in which colours."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from itertools import takewhile

import pytest
from click.testing import CliRunner
from test_cli import NODE, SUBVERBS, enqueue, fail, start
from transactions import protocol

from blueque import __version__
from blueque.cli.main import VERBS, blueque
from blueque.cli.options import Invocation
from blueque.cli.synonyms import MEANT, OPTIONS
from blueque.cli.verbs import help as words


@pytest.mark.parametrize("word", [*words.STATES, *words.LISTENERS, *words.WORDS])
def test_help_explains_every_state_by_its_name(run, word):
    result = run("help", word.upper())

    meaning = {**words.WORDS, **words.LISTENERS, **words.STATES}[word]
    assert result.returncode == 0 and meaning in result.stdout
    assert result.stdout.splitlines()[0].startswith(f"{word}, of a ")


@pytest.mark.parametrize("word", words.THINGS)
def test_help_explains_what_other_words_mean_and_shows_the_verb_of_that_name_too(run, word):
    result = run("help", word)

    assert result.returncode == 0 and result.stdout.startswith(f"{word}: {words.THINGS[word]}\n")
    assert (f"\n\nUsage: blueque {word} " in result.stdout) == (word in VERBS)
    assert f"{word} " in run("help", "words").stdout


def test_help_of_what_people_call_a_state_names_the_state(run):
    lines = run("help", "running").stdout.splitlines()

    assert lines[0] == "running: the state is called started" and lines[1].startswith(
        "started, of a task: "
    )


@pytest.mark.parametrize("typed", ["started,complete", "Running,done"])
def test_states_are_taken_with_commas_between_them_and_by_what_people_call_them(run, redis, typed):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())
    for n, act in enumerate((fail, start, enqueue)):
        act(redis, f"task-{n}")

    assert run("ls", "--state", typed, "--ids").stdout.split() == ["task-1"]
    assert len(run("ls", "--state", "all", "--ids").stdout.split()) == 3
    assert sorted(run("ls", "--state", "failed", "--state", "waiting", "--ids").stdout.split()) == [
        "task-0",
        "task-2",
    ]


def test_short_help_is_help_for_the_program_and_its_verbs(run):
    for verb in ([], ["ls"], ["queue", "set"], ["task", "show"]):
        assert run(*verb, "-h").stdout == run(*verb, "--help").stdout != ""


def test_the_help_of_the_program_alone_explains_the_options_that_all_verbs_share(run):
    for verb, is_alone in (([], False), (["ls"], True), (["queue", "set"], True)):
        shown = run(*verb, "--help").stdout
        assert (shown.count("See blueque --help."), "--redis-url" in shown) == (
            is_alone,
            not is_alone,
        )
        assert shown.count("--json") >= 1


def test_the_package_run_as_a_module_is_the_program():
    shown = subprocess.run(
        [sys.executable, "-m", "blueque", "--version"], capture_output=True, text=True, timeout=60
    )

    assert shown.stdout == f"blueque {__version__}\n"


def test_what_is_said_besides_is_of_words_that_there_are():
    assert words._MORE.keys() <= words.STATES.keys() | words.LISTENERS.keys()
    assert not (words.STATES.keys() | words.LISTENERS.keys() | words.WORDS.keys()) & VERBS.keys()


def test_help_explains_an_exit_code_and_all_states_of_listeners(run):
    assert run("help", "75").stdout.startswith("exit code 75: something needs attention")
    assert run("help", "listeners").stdout.splitlines()[0].split() == ["up", "it", "takes", "tasks"]
    assert run("help", "75", "76").returncode == 2


# What people type first who know 1.0.0, Celery, RQ or kubectl, and the command of the answer.
INTENTIONS = {
    **MEANT,
    "KILL 7c1f": "blueque cancel ID",
    "queue peek video": "blueque ls --state pending -q QUEUE",
    "limit video 8": "blueque queue set QUEUE max-running=N",
    "unpause video": "blueque queue resume, blueque host resume or blueque schedule resume",
    "off": "blueque queue pause, blueque host pause or blueque schedule pause",
    "pause video": "blueque queue pause, blueque host pause or blueque schedule pause",
    "node drain gpu-1": "blueque host drain HOST",
    "drain gpu-1": "blueque host drain",
    "trigger nightly": "blueque schedule trigger",
    "host list": "blueque host ls",
    "host stop": "blueque host pause",
    "task list": "blueque task ls",
    "task kill 7c1f": "blueque task cancel",
    "task stop": "blueque task cancel",
    "task rm": "blueque task delete",
    "queue list": "blueque queue ls",
    "queue edit video": "blueque queue set",
    "queue add": "blueque queue set",
    "queue delete video": "blueque queue forget",
    "queue rm": "blueque queue forget",
    "queue describe video": "blueque queue show",
    "group stop": "blueque group cancel",
    "group delete": "blueque group forget",
    "schedule delete nightly": "blueque schedule rm",
    "schedule forget": "blueque schedule rm",
    "schedule stop nightly": "blueque schedule pause",
    "schedule kill": "blueque schedule pause",
    "schedule off nightly": "blueque schedule pause",
    "schedule on nightly": "blueque schedule resume",
}


@pytest.mark.parametrize(("typed", "meant"), INTENTIONS.items())
def test_a_first_guess_is_answered_with_the_command_that_does_it(run, typed, meant):
    result = run(*typed.split())

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[0].endswith(f". Use: {meant}")


@pytest.mark.parametrize(
    "typed",
    [
        *("show", "why", "logs", "history", "stack", "graph", "delete", "interrupt"),
        *("task show", "task history", "move --first", "task move --now", "cancel", "requeue"),
    ],
)
def test_a_verb_of_tasks_works_with_and_without_the_word_task(run, typed):
    assert run(*typed.split(), "nobody").returncode == 3


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("stauts", " Did you mean blueque stats or blueque status?"),
        ("enqeue", " Did you mean blueque enqueue?"),
        ("queue forgt", " Did you mean blueque queue forget?"),
        ("host drian", " Did you mean blueque host drain?"),
        ("triger nightly", " Did you mean blueque schedule trigger?"),
        ("schedule rum", " Did you mean blueque schedule rm or blueque schedule trigger?"),
        ("xyzzy", ""),
        ("group xyzzy", " If that is a name: blueque group show xyzzy"),
        ("queue render", " If that is a name: blueque queue show render"),
        *((word, "") for word in ("dump", "license", "shell", "login", "locks")),
    ],
)
def test_a_verb_that_is_mistyped_says_which_is_meant(run, typed, hint):
    result = run(*typed.split())

    assert (result.returncode, result.stdout) == (2, "")
    verb = typed.split()[-1] if typed.split()[0] in VERBS else typed.split()[0]
    assert f": unknown verb {verb!r}.{hint}" in result.stderr.splitlines()[0]


@pytest.mark.parametrize("noun", ["queue", "schedule", "host", "group", "task"])
def test_a_noun_alone_lists(run, noun):
    alone, listed = run(noun), run(noun, "ls")

    assert (alone.returncode, alone.stdout, alone.stderr) == (0, listed.stdout, listed.stderr)
    assert json.loads(run(noun, "--json").stdout)["kind"]
    assert run(noun, "-h").stdout.startswith(f"Usage: blueque {noun} ")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("retry", ". Use: blueque requeue ID"),
        ("stat", ". Use: blueque stats"),
        ("cancle", ". Did you mean blueque cancel or cancelled?"),
        ("strated", ". Did you mean started or states?"),
        ("exit-code", ". Use: blueque help exit-codes"),
        ("queue forgt", ". Did you mean blueque queue forget?"),
        ("xyzzy", ""),
        ("ls xyzzy", ""),
    ],
)
def test_help_of_what_there_is_not_says_what_is_meant(run, typed, hint):
    result = run("help", *typed.split())

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[0] == f"blueque: unknown verb or word {typed!r}{hint}"


def test_every_hint_names_a_command_and_none_hides_one():
    assert not MEANT.keys() & VERBS.keys()
    for meant in MEANT.values():
        for line in re.findall(r"blueque(?:-\w+)?[\w -]*", meant):
            verb = [*takewhile(lambda word: word.isalpha() and word.islower(), line.split()[1:])]
            verb = verb[:1] if verb[:1] == ["help"] else verb
            result = CliRunner().invoke(blueque, ["help", *verb])
            assert line.startswith("blueque-") or result.exit_code == 0, line


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ls failed", "too many arguments: failed. failed is a state: --state failed"),
        ("ls --failed", "unknown option --failed; did you mean --state failed?"),
        ("ls done", "too many arguments: done. done is a state: --state complete"),
        ("ls video", "too many arguments: video. Name a queue with -q."),
        (
            "archive a b /srv/archive",
            "too many arguments: /srv/archive. It takes QUEUE DIRECTORY. For several queues write a "
            "pattern in quotes: 'video.*'",
        ),
        ("show 7c1f 8d2e", "too many arguments: 8d2e. It takes ID."),
        ("history 7c1f 8d2e", "too many arguments: 8d2e. Name a queue with -q. It takes [ID]."),
        ("doctor video", "too many arguments: video. It takes no arguments."),
        ("ls all", "too many arguments: all. all is a state: --state all"),
        ("show --jsno 7c1f", "unknown option --jsno; did you mean --json?"),
        ("cancel 7c1f -y", "unknown option -y; did you mean --yes?"),
        ("show 7c1f -o json", "unknown option -o; did you mean --json?"),
        ("logs 7c1f --tail 5", "unknown option --tail; did you mean -n?"),
        *(
            (f"{verb or 'ls'} {option} 5", f"unknown option {option}; {meant}")
            for verb, options in OPTIONS.items()
            for option, meant in options.items()
            if verb != "blueque-listener"
        ),
        ("queue set video concurrency=3", "concurrency is called max-running here"),
        ("web --listen 127.0.0.1:80000", "--listen: '127.0.0.1:80000': the port is more than"),
        ("metrics --listen 127.0.0.1:80000", "--listen: '127.0.0.1:80000': the port is more than"),
    ],
)
def test_a_word_that_a_verb_does_not_know_says_what_is_meant(run, line, hint):
    result = run(*line.split())

    assert (result.returncode, result.stdout) == (2, "")
    assert hint in result.stderr.splitlines()[0]


@pytest.mark.parametrize("verb", ["show", "why", "logs"])
def test_a_key_a_title_or_a_queue_in_the_place_of_an_id_says_how_to_find_the_task(
    run, client, verb
):
    client.get_queue("video").enqueue(1, key="scene-17")

    hint = "If it is a key: blueque ls --key scene-17; a title: blueque ls --text scene-17"
    assert run(verb, "scene-17").stderr.splitlines()[1] == hint
    assert "'video' is a queue, not a task" in run(verb, "video").stderr


def test_a_queue_that_is_misspelt_says_which_is_meant(run, client, answer, redis):
    client.get_queue("render.4k").enqueue(1)
    protocol.register(redis, "render.4k", NODE, "i1", {"beat_every": 10}, time.time())

    assert run("ls", "-q", "rendr.4k").stderr.splitlines()[0].endswith("Did you mean render.4k?")
    assert run("queue", "pause", "rendr.4k").stderr.endswith("yet. Did you mean render.4k?\n")
    _, seen = answer(b"", "enqueue", "render4k", "1")
    assert "so the task waits. Did you mean render.4k? Start one:" in seen


@pytest.mark.parametrize(
    ("address", "code", "hint"),
    [
        ("rediss://127.0.0.1:1", 69, "Does it speak TLS, as rediss:// says?"),
        ("redis+sentinel://127.0.0.1:1/gpu", 69, "During a failover, try again"),
        ("redis+sentinel://127.0.0.1:{port}/gpu", 78, "or its sentinel_password"),  # of no Sentinel
        (
            "rediss+sentinel://127.0.0.1:1/gpu?ssl_ca_certs=/no/such.pem",
            78,
            "or the files in the address: ssl_ca",
        ),
    ],
)
def test_an_address_that_leads_nowhere_says_what_to_look_at(run, server, address, code, hint):
    result = run("status", "--redis-url", address.format(port=server.port))

    assert result.returncode == code and hint in result.stderr


@pytest.mark.parametrize("kind", ["redis", "redis+sentinel"])
def test_an_address_without_tls_that_is_reset_asks_whether_it_wants_tls(run, kind):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            accepted, _ = server.accept()
            accepted.recv(1)  # what is left unread makes the kernel reset the connection
            accepted.close()

        thread = threading.Thread(target=reset)
        thread.start()
        result = run("status", "--redis-url", f"{kind}://127.0.0.1:{server.getsockname()[1]}")
        thread.join()

    question = f"Does it want TLS? Then write {kind.replace('redis', 'rediss')}://."
    assert result.returncode == 69 and question in result.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "is_coloured"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "0"}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        (("--color", "auto"), {"FORCE_COLOR": "1"}, True),
        (("--color", "auto"), {}, False),
        (("--color", "always"), {"TERM": "dumb"}, True),
    ],
)
def test_colours_are_as_wanted_whichever_side_of_the_verb_says_so(
    redis, url, arguments, variables, is_coloured
):
    protocol.enqueue(redis, "video", "abcd", "1", time.time())
    cleared = {"NO_COLOR": None, "FORCE_COLOR": None, "TERM": "xterm"}

    for line in ([*arguments, "cancel", "abcd"], ["cancel", "abcd", *arguments]):
        result = CliRunner().invoke(blueque, line, obj=Invocation(url=url), env=cleared | variables)
        assert (result.exit_code, "\x1b[36mcancelled" in result.stdout) == (0, is_coloured), line


def test_on_a_terminal_never_takes_colours_off(redis, url):
    protocol.enqueue(redis, "video", "abcd", "1", time.time())

    line = ["cancel", "abcd", "--color", "never"]
    result = CliRunner().invoke(
        blueque, line, obj=Invocation(url=url), env={"NO_COLOR": None, "TERM": "xterm"}, color=True
    )

    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("word", ["run", "RUN", "sched", "pend", "resv", "done", "fail", "canc"])
def test_a_state_may_be_named_as_the_columns_of_status_are(run, word):
    assert run("ls", "--state", word).returncode == 0


@pytest.mark.parametrize("line", [[], *([verb] for verb in VERBS), *map(str.split, SUBVERBS)])
def test_no_line_of_help_is_longer_than_79_columns_or_ends_within_a_name(line):
    shown = CliRunner().invoke(
        blueque, [*line, "--help"], obj=Invocation(), env={"COLUMNS": "80"}, terminal_width=79
    )

    assert shown.exit_code == 0 and "<=x" not in shown.stdout
    assert [
        one for one in shown.stdout.splitlines() if len(one) > 79 or re.search(r"\w-$", one)
    ] == []
