"""What the options of a write say, and which are refused. No Spark runs here."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from types import MappingProxyType

import pytest

from blueque import Group, InvalidInput, InvalidType, Retry, after
from blueque.spark.write_options import parse, target_of

URL = "redis://127.0.0.1:1/0"  # nobody is there, and nobody is asked


def said(**options):
    return parse({"queue": "render", "url": URL, "key": "id", **options})


def test_every_option_means_what_it_says():
    target = said(
        key="scene, frame",
        params='["a, b"]',
        json="TRUE",
        group="tonight",
        eta="2030-01-31T08:00:00+01:00",
        priority="-5",
        keep="2d",
        max_bytes="8KiB",
        resources="gpu=1, memory=8GiB",
        lock="licence=3",
        retry='{"max": 2}',
        time_limit="2h",
        lead="30",
    )

    assert (target.queue, target.url, target.group) == ("render", URL, "tonight")
    assert (target.keys, target.parameters) == (("scene", "frame"), ("a, b",))
    assert (target.is_json, target.eta) == (True, datetime(2030, 1, 31, 7, tzinfo=UTC).timestamp())
    assert (target.priority, target.keep, target.max_bytes) == (-5, "2d", 8192)
    assert target.options == {
        "resources": {"gpu": 1, "memory": 8 * 2**30},
        "lock": ("licence", 3),
        "retry": Retry(2),
        "time_limit": "2h",
        "lead": "30",
    }


def test_an_eta_and_a_priority_may_be_columns():
    target = said(eta="due_at", priority="how_urgent")

    assert (target.eta, target.priority) == ("due_at", "how_urgent")
    assert target.constants == {"priority": 0}


def of_python(**options):
    return target_of({"queue": "render", "url": URL, "key": "id", **options})


def test_options_of_python_are_values_and_none_is_not_given():
    given = {
        "resources": {"gpu": 2, "memory": "1GiB"},
        "lock": "customer=17",
        "retry": False,
        "time_limit": 90,
        "keep": 60,
        "priority": 3,
    }

    target = of_python(lead=None, tags=iter(["night"]), params=("a, b",), **given)

    amounts = {"gpu": 2, "memory": 2**30}
    assert target.constants == {**given, "resources": amounts, "tags": ["night"]}
    assert (target.keys, target.parameters, target.is_value) == (("id",), ("a, b",), False)


def test_spark_can_copy_whatever_mapping_and_iterable_python_gives():
    target = of_python(
        resources=MappingProxyType({"gpu": 1}),
        context=MappingProxyType({"night": [1]}),
        tags=iter(["a"]),
        after=after(ok=iter(["b"])),
    )

    assert pickle.loads(pickle.dumps(target)) == target
    assert target.options == {"resources": {"gpu": 1}, "context": {"night": [1]}, "tags": ["a"]}


@pytest.mark.parametrize("size", [-1, 10.5, "much"])
def test_the_limit_of_parameters_is_a_size(size):
    assert of_python(max_bytes="8KiB").max_bytes == of_python(max_bytes=8192).max_bytes == 8192
    with pytest.raises(InvalidInput, match="option 'max_bytes'"):
        of_python(max_bytes=size)


def test_what_tasks_wait_for_is_said_in_text_or_in_python():
    wanted = after(ok=["a", Group("n 1")])

    assert of_python(after=wanted, group="n2").links == {"after": wanted}
    assert said(after="a, group n 1", group="n2").links == {"after": wanted}
    assert said(after='{"any": ["a", "b"]}').links == {"after": after(any=["a", "b"])}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": ""}, "option 'group': "),
        ({"after": '{"all": ["a"]}'}, "option 'after': there are ok, any, not_ok, and not all"),
        ({"after": '{"ok": ["a"], "any": ["a"]}'}, "option 'after': after: task a is to be both"),
        ({"broken": "mend"}, "broken is 'hold' or 'cancel', not 'mend'"),
        ({"queue": ""}, "option 'queue': a queue name cannot be empty"),
        ({"queue": "a\0b"}, r"option 'queue': the queue name 'a\\x00b' holds a NUL character"),
        ({"hold": "1d"}, "option 'hold' is for the tasks of a group: name it with option 'group'"),
        ({"append": "true"}, "option 'append' is for the tasks of a group"),
        ({"group": "n", "hold": "3d", "keep": "1d"}, "hold is '3d': the group itself is kept for"),
        ({"prioritty": "1"}, "there is no option 'prioritty': did you mean 'priority'?"),
        ({"colour": "red"}, "there is no option 'colour': there are queue, url, key, "),
        ({"path": "out/"}, "a queue is not a path: name it with option 'queue'"),
        (
            {"group": "x" * 201},
            "option 'group': the group name 'xxxxxxxxxxxxxxxxxxxx'... takes 201 bytes; the limit is 200",
        ),
        ({"key": "a,,b"}, "option 'key': 'a,,b' is not a list of columns"),
        ({"params": "[1]"}, r"option 'params': '\[1\]' is not a list of columns"),
        ({"json": "yes"}, "option 'json': it is true or false, not 'yes'"),
        (
            {"eta": "1700000000000"},
            "option 'eta': eta 1700000000000.0 is not a time before the year 10000",
        ),
        ({"eta": "3600"}, "option 'eta': eta 3600.0 is a time in 1970: for a delay, give"),
        ({"eta": "2030-01-31T08:00:00"}, "option 'eta': eta 2030-01-31 08:00:00 has no time zone"),
        ({"priority": "101"}, "priority 101 is not between -100 and 100"),
        ({"keep": "soon"}, "'soon' is not a duration"),
        ({"max_bytes": "big"}, "option 'max_bytes': 'big' is not a size"),
        ({"resources": "gpu"}, "option 'resources': 'none' is not a size"),
        ({"lock": "a=0"}, "option 'lock': a lock can be held by 1 to 1000000 tasks"),
        ({"retry": "often"}, "option 'retry': 'often' is not a retry policy"),
        ({"time_limit": "0"}, "time_limit is 0.0; it must be from 0.001"),
        ({"url": "http://here"}, "'http://here' is not a Redis address"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(options, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        said(**options)


def test_names_of_options_may_be_written_in_any_case():
    target = parse({"Queue": "render", "URL": URL, "Key": "id", "Group": "a"})

    assert (target.queue, target.keys, target.group) == ("render", ("id",), "a")


def test_a_write_without_a_key_is_refused_with_what_a_key_is():
    with pytest.raises(InvalidInput, match="a key is needed: name the columns whose values tell"):
        parse({"queue": "render", "url": URL})


def test_a_queue_must_be_named():
    with pytest.raises(InvalidInput, match="option 'queue' is missing: to which queue"):
        parse({"url": URL})


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"resources": ["gpu"]}, InvalidType, "resources are a dict"),
        ({"json": "false"}, InvalidType, "option 'json' is True or False, not 'false'"),
        ({"prioritty": 1}, InvalidInput, "there is no option 'prioritty': did you mean 'priority'"),
        ({"priority": 1.5}, InvalidType, "a priority must be a whole number, not float"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_python_too(options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        of_python(**options)


def test_executors_wait_for_as_many_replicas_as_the_driver(monkeypatch):
    monkeypatch.setenv("BLUEQUE_REPLICAS", "2")
    monkeypatch.setenv("BLUEQUE_REPLICAS_TIMEOUT", "4s")
    target = pickle.loads(pickle.dumps(said()))
    monkeypatch.delenv("BLUEQUE_REPLICAS")
    monkeypatch.delenv("BLUEQUE_REPLICAS_TIMEOUT")

    with target.connected() as client:
        settings = client.connections.settings
    assert (settings.replicas, settings.replicas_timeout) == (2, 4)
