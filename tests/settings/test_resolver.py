"""Which value of a setting counts, and where it comes from."""

from __future__ import annotations

import pytest

from blueque import InvalidInput, Retry
from blueque.cli.listener_handlers import Modules, chosen, decorated, remarks_on
from blueque.cli.listener_queues import chosen_among, of_queue
from blueque.node.handler_check import Registered
from blueque.settings.file import parse
from blueque.settings.in_effect import OfQueue, TaskSettings
from blueque.settings.resolver import Layer, Sources
from blueque.settings.table import NAMED, TABLES, VARIABLES, rows, variable

FILE = """
[listener]
modules = ["films"]
slots = 3
time_limit = "1h"
stall_limit = "1h"
lead = 5
retry = 9
resources = { gpu = 1 }
[retention]
failed = "never"
complete = "3d"
[queues."render.4k"]
time_limit = false
grace = "5s"
retention = { complete = "1d" }
resources = { gpu = 2 }
"""
FILM = Registered(("films",), "films:film", True, '{"max":3}', {"time_limit": 7200, "lead": 1})


def sources(file="", options=None, **environ):
    return Sources(parse(file, "a.toml"), options or {}, ["listener"], environ)


def found_in(resolver, *keys):
    found = [resolver.find(key) for key in keys]
    return [(one.value, one.origin, one.place) for one in found]


def test_an_option_goes_before_a_variable_and_that_before_the_file_and_the_default():
    settings = sources(FILE, {"slots": 1}, BLUEQUE_SLOTS="2", BLUEQUE_LEAD="7s").of("listener")

    assert found_in(settings, "slots", "lead", "retry", "beat") == [
        (1, "option", "--slots"),
        (7, "environment", "BLUEQUE_LEAD"),
        (Retry(max=9), "file", "a.toml [listener]"),
        (10.0, "default", None),
    ]


def test_of_a_queue_the_nearest_place_that_says_anything_counts():
    its = sources(FILE, {"grace": 4}, BLUEQUE_STALL_LIMIT="9m", BLUEQUE_RESOURCES="gpu=7")
    handler = Layer("handler", {"lead": 2, "time_limit": 9}, {"lead": "films:film"})
    in_redis = Layer("redis", {"lead": 3, "retry": False, "retention.failed": 1})

    whole = its.nearer("render.4k").then(handler, in_redis, *its.farther().layers)

    table = 'a.toml [queues."render.4k"]'
    assert found_in(whole, "grace", "stall_limit", "time_limit", "lead", "retry", "resources") == [
        (4, "option", "--grace"),
        (540, "environment", "BLUEQUE_STALL_LIMIT"),
        (None, "file", table),
        (2, "handler", "films:film"),
        (False, "redis", None),
        ({"gpu": 2}, "file", table),
    ]
    kept = [f"retention.{status}" for status in ("failed", "complete", "cancelled")]
    assert [one[1:] for one in found_in(whole, *kept)] == [
        ("redis", None),
        ("file", table),
        ("default", None),
    ]
    other = its.nearer("other", 7).then(*its.farther().layers)
    assert found_in(other, "weight", "time_limit", "retention.complete", "resources") == [
        (7, "option", "QUEUE=WEIGHT"),
        (3600, "file", "a.toml [listener]"),
        (other.get("retention.complete"), "file", "a.toml [retention]"),
        ({}, "default", None),
    ]


def test_what_a_listener_is_asked_to_do_is_what_it_does_with_the_settings_in_redis():
    its = sources(FILE, {"retry": Retry(max=1)})
    asked = OfQueue(*of_queue(its.nearer("render.4k"), its.farther()))

    held = TaskSettings.read(asked, {"retry": "null", "time_limit": "5", "lead": "6"})

    assert (held.limits.time, held.limits.stall, held.limits.grace) == (None, 3600, 5)
    assert (held.limits.lead, held.retry) == (6, Retry(max=1))
    assert (held.retention["complete"].age, held.retention["failed"].age) == (86400, None)


@pytest.mark.parametrize(
    ("file", "options", "environ", "run"),
    [
        ("", {"handler": "a:b"}, {"BLUEQUE_HANDLER": "c:d"}, ("a:b", "option")),
        ("listener.handler = 'e:f'", {}, {"BLUEQUE_HANDLER": "c:d"}, ("c:d", "environment")),
        ("queues.films.exec = 'work -x'", {"modules": ["films"]}, {}, ("films:film", "option")),
        ("queues.films.exec = 'work -x'", {}, {}, ("work -x", "file")),
        ("queues.films.exec = 'work'\nlistener.modules = ['films']", {}, {}, ("work", "file")),
        ("listener = {modules = ['films'], handler = 'e:f'}", {}, {}, ("films:film", "file")),
        (
            "listener = {modules = ['films'], handler = 'e:f'}",
            {},
            {"BLUEQUE_EXEC": "x"},
            ("x", "environment"),
        ),
        ("listener.handler = 'e:f'", {}, {}, ("e:f", "file")),
        ("", {}, {}, None),
    ],
)
def test_the_nearest_place_that_names_a_handler_counts(file, options, environ, run):
    its = sources(file, options, **environ)
    modules = its.modules(["films"])

    known = Modules(["films"], {"films": FILM}) if modules and modules.value else Modules()
    found = chosen(its, "films", known)

    assert (found and (str(found.value), found.origin)) == run


@pytest.mark.parametrize(
    ("file", "queues", "names"),
    [
        ("queues.films.exec = 'work'\nlistener.modules = ['films']", ["films"], None),
        ("queues.films.exec = 'work'\nlistener.modules = ['films']", ["films", "b"], ["films"]),
        ("queues.films.exec = 'work'\nlistener.modules = ['films']", [], ["films"]),
        ("listener.handler = 'a:b'", ["films"], None),
    ],
)
def test_modules_are_named_where_a_queue_may_have_its_handler_there(file, queues, names):
    found = sources(file).modules(queues)

    assert (found and found.value) == names


def test_what_a_decorator_says_counts_for_the_queue_that_it_names():
    config = parse("aliases.old = 'films'")

    assert decorated(config, "films", FILM).values == {
        "retry": Retry(max=3),
        "time_limit": 7200,
        "lead": 1,
    }
    assert decorated(config, "films", FILM._replace(queues=("old",))).values.keys() == {
        *("retry", "time_limit", "lead")
    }
    assert not decorated(config, "sounds", FILM).values
    assert not decorated(config, "films", None).values


def test_what_a_decorator_says_and_does_not_count_is_remarked_with_its_reason():
    its = sources("queues.films.lead = 3", {"retry": False})
    before = "queue 'films': the decorator of films:film is not used for"

    assert remarks_on(its.config, "films", FILM, its.nearer("films")) == [
        f"{before} lead: [queues.films] in a.toml sets another value",
        f"{before} retry: an option or a variable wins",
    ]
    (remark,) = remarks_on(its.config, "b", FILM, its.nearer("b"))
    assert remark.endswith("lead, retry, time_limit: it is the handler of queue 'films'")


@pytest.mark.parametrize(
    ("file", "options", "known", "named", "weights", "select"),
    [
        ("", {}, {}, {"a": None}, {}, "ordered"),
        ("queues.c.weight = 2", {}, {}, {"a": None, "b": None}, {}, "ordered"),
        ("", {}, {"a": 3}, {"a": None, "b": None}, {"a": 3}, "lottery"),
        ("", {}, {"a": 3, "b": 4}, {"a": None, "b": 7}, {"a": 3, "b": 7}, "lottery"),
        ("", {"select": "ordered"}, {"a": 3}, {"a": None}, {"a": 3}, "ordered"),
        ("listener.select = 'round-robin'", {}, {"a": 3}, {"a": None}, {"a": 3}, "round-robin"),
        ("listener.select = 'round-robin'", {}, {}, {"a": 2}, {"a": 2}, "lottery"),
    ],
)
def test_a_weight_makes_it_a_lottery_and_one_in_the_arguments_goes_before(
    file, options, known, named, weights, select
):
    assert chosen_among(sources(file, options).of("listener"), known, named) == (weights, select)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("BLUEQUE_SLOTS", "0", "it is 0; it must be from 1 to 1000"),
        ("BLUEQUE_SLOTS", "many", "'many' is not a whole number"),
        ("BLUEQUE_MAX_RUNTIME", "soon", "'soon' is not a duration"),
        ("BLUEQUE_ON_TERM", "die", "'die' is not one of"),
        ("BLUEQUE_RETRY", "often", "'often' is not a retry policy"),
        ("BLUEQUE_RESOURCES", "gpu", "gpu: write NAME=AMOUNT"),
        ("BLUEQUE_RESOURCES", "gpu=1 gpu=2", "gpu=2: named twice"),
        ("BLUEQUE_UNTIL_EMPTY", "perhaps", "'perhaps' is not true or false"),
        ("BLUEQUE_SPOOL_LIMIT", "100%", "'100%' is not a share of a disk"),
        ("BLUEQUE_LOG_LIMIT", "1000", "'1000' is too small"),
        ("BLUEQUE_GRACE", "-1", "'-1' is not a duration"),
    ],
)
def test_a_mistake_in_a_variable_is_told_by_its_name(name, text, message):
    with pytest.raises(InvalidInput) as caught:
        sources(**{name: text})

    assert str(caught.value).startswith(f"{name}: {message}")


def test_variables_have_several_values_side_by_side_and_an_empty_one_says_nothing():
    settings = sources(
        BLUEQUE_RESOURCES="gpu=2 memory=1GiB",
        BLUEQUE_PRELOAD="json ast",
        BLUEQUE_WARM="No",
        BLUEQUE_EXEC="sh -c 'a b'",
        BLUEQUE_SLOTS="",
    ).of("listener")

    assert settings.get("resources") == {"gpu": 2, "memory": 2**30}
    assert settings.get("preload") == ["json", "ast"]
    assert (settings.get("warm"), settings.get("slots")) == (False, 1)
    assert settings.get("exec") == ["sh", "-c", "a b"]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"BLUEQUE_HANDLER": "a:b", "BLUEQUE_EXEC": "c"},
            "BLUEQUE_HANDLER and BLUEQUE_EXEC are both set",
        ),
        (
            {"BLUEQUE_HANDLER": "a:b", "BLUEQUE_MODULES": "c"},
            "BLUEQUE_HANDLER and BLUEQUE_MODULES are both",
        ),
    ],
)
def test_two_handlers_in_one_place_are_refused(environ, message):
    with pytest.raises(InvalidInput, match=message):
        sources(**environ)


# The table


def test_a_value_is_written_as_the_file_has_it_and_read_again():
    for table in TABLES:
        if table in NAMED:
            continue
        for key, row in rows(table).items():
            example = None if row.example is None else row.kind.read(row.example)
            for value in (example, row.get_default()):
                if value not in (None, "", ()):
                    assert row.kind.read(row.kind.write(value)) == value, (table, key)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (90, "1m30s"),
        (129600, "1d12h"),
        (604800, "7d"),
        (3725.5, "1h2m5.5s"),
    ],
)
def test_a_duration_is_written_exactly(seconds, text):
    assert rows("listener")["keep"].kind.write(seconds) == text


def test_no_two_settings_have_one_variable_unless_they_are_one():
    seen = {}
    for table in VARIABLES:
        for row in TABLES[table]:
            name = variable(table, row.key)
            assert seen.setdefault(name, row) == row
