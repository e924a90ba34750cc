"""Functions that register themselves as handlers: how they are called, and how they enqueue."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import pathlib
import pickle
import signal
import time
import typing
from collections.abc import Mapping

import pytest

import blueque
from blueque import Client, InvalidInput, InvalidType, Retry
from blueque.settings.file import load
from blueque.task_process import registered
from blueque.task_process.handlers import unfit
from blueque.task_process.running_task import RunningTask
from blueque.testing import run_task


@pytest.fixture(autouse=True)
def clients(monkeypatch):
    """Leave no handler registered, and no client connected. These are the clients by their address."""
    clients = {}
    monkeypatch.setattr(registered, "registered", [])
    monkeypatch.setattr(registered, "_clients", clients)
    yield clients
    for client in clients.values():
        client.close()


def task(parameters):
    fields = {"queue": "video", "parameters": parameters, "parameters_encoding": "json"}
    return RunningTask("t", fields, None)


def named(task, film):
    """Encode a film."""
    return [task.id, film]


def alone(task):
    return task.parameters


def register(function, **settings):
    return blueque.handler("video", **settings)(function)


@register
def at_the_top(task, film):
    return film


def test_a_decorated_function_is_called_as_it_was_written():
    handler = register(named)

    assert handler(task("1"), "Metropolis") == ["t", "Metropolis"]
    assert (handler.__name__, handler.__doc__) == ("named", "Encode a film.")
    assert handler.__module__ == __name__
    assert handler.queue == "video"
    assert repr(handler) == f"<QueueHandler {__name__}:named of 'video'>"
    assert registered.registered == [handler]


@functools.wraps(named)
def wrapped(*arguments):
    return named(*arguments)


class Encoder:
    def encode(self, task, film):
        return [task.id, film]

    def __call__(self, task, film):
        return [task.id, film]


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (named, ["t", {"film": 1}]),
        (alone, {"film": 1}),
        (lambda task, film=None: film, {"film": 1}),
        (lambda task, *rest: list(rest), []),
        (lambda task, *, film=0: film, 0),
        (wrapped, ["t", {"film": 1}]),
        (functools.partial(named, film=2), ["t", 2]),
        (Encoder().encode, ["t", {"film": 1}]),
        (Encoder(), ["t", {"film": 1}]),
    ],
    ids=[
        "two",
        "one",
        "with a default",
        "any number",
        "keyword",
        "wrapper",
        "partial",
        "method",
        "instance",
    ],
)
def test_a_second_place_gets_the_parameters(function, result):
    handler = register(function)

    assert handler.run(task('{"film": 1}')) == result and unfit(handler) is None


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            lambda task, film, size: None,
            "takes (task, film, size) and cannot be called with the task and its parameters: "
            "missing a required argument: 'size'",
        ),
        (
            lambda: None,
            "takes () and cannot be called with the task alone: too many positional arguments",
        ),
        ((lambda task: (yield)), "is a generator function"),
    ],
)
def test_what_cannot_be_called_is_told_why(function, reason):
    assert (unfit(register(function)) or "").startswith(reason)


@pytest.mark.parametrize(
    ("mistake", "error", "sentence"),
    [
        (lambda: blueque.handler(named), InvalidType, "name the queue of the handler"),
        (lambda: blueque.handler(""), InvalidInput, "queue name"),
        (lambda: register(Encoder), InvalidType, "is a function, not <class"),
        (lambda: register(3), InvalidType, "is a function, not 3"),
        (lambda: register(named, retry="often"), InvalidType, "retry is a blueque.Retry"),
        (lambda: register(named, time_limit="soon"), InvalidInput, "time_limit: "),
        (
            lambda: blueque.handler("audio")(register(named)),
            InvalidInput,
            ":named cannot be the handler of both 'video' and 'audio'",
        ),
    ],
)
def test_a_mistake_is_told_where_it_is_made(mistake, error, sentence):
    with pytest.raises(error, match=sentence):
        mistake()


@dataclasses.dataclass
class Film:
    title: str


class Reel(typing.NamedTuple):
    number: int


class Titled(typing.Protocol):
    title: str


class Fields(typing.TypedDict):
    title: str


@pytest.mark.parametrize("kind", [Film, "Film", Reel, datetime.datetime, pathlib.Path, set])
def test_parameters_of_a_class_that_no_json_value_is_are_refused_where_they_are_annotated(kind):
    def encode(task, film): ...

    encode.__annotations__["film"] = kind
    name = getattr(kind, "__name__", kind)

    with pytest.raises(InvalidType, match=f"'film' is never a {name}: annotate it as a dict"):
        register(encode)


@pytest.mark.parametrize(
    "kind",
    [dict, list, str, float, bool, object, type(None), Fields, Mapping, "Unknown", "dict[str, int]"]
    + [typing.Any, dict[str, int], int | None, typing.Sequence[int], typing.Hashable, Titled],
)
def test_any_other_annotation_of_parameters_is_taken(kind):
    def encode(task, film): ...

    encode.__annotations__["film"] = kind

    assert register(encode).takes_parameters


def test_the_annotations_of_a_wrapped_function_are_not_those_of_its_wrapper():
    def encode(task, film: Film): ...

    @functools.wraps(encode)
    def wrapper(task, film): ...

    assert register(wrapper).takes_parameters


def test_what_the_decorator_says_is_kept_as_tasks_have_it():
    handler = register(named, retry=3, time_limit="2h", memory_limit="1KiB")

    assert handler.settings == (Retry(max=3), {"time_limit": 7200, "memory_limit": 1024})
    assert register(named, retry=False).settings == (False, {})
    assert register(named).settings == (None, {})


def test_other_processes_find_a_handler_under_its_name():
    assert pickle.loads(pickle.dumps(at_the_top)) is at_the_top


def test_it_can_be_tried_in_the_process_of_a_test():
    async def scene(task, film):
        return [task.queue, film]

    before = signal.getsignal(signal.SIGTERM)
    assert run_task(register(scene), {"title": "M"}).result[1] == {"title": "M"}
    assert signal.getsignal(signal.SIGTERM) is before


# Producers


def test_a_handler_puts_tasks_in_its_queue(client, redis):
    handler = register(named, retry=3, time_limit="2h")

    first = handler.enqueue({"film": 1}, key="a", priority=5, client=client)
    later = handler.schedule({"film": 2}, time.time() + 3600, client=client, time_limit="1h")
    many = handler.enqueue_many([{"film": 3}, {"film": 4}], client=client, keys=["b", "c"])

    assert not handler.enqueue({"film": 1}, key="a", client=client).is_new and many.new == 2
    tasks = [client.get_task(task_id) for task_id in (first, later)]
    assert [task.queue for task in tasks] == ["video"] * 2
    assert [task.parameters for task in tasks] == [{"film": 1}, {"film": 2}]
    # What the decorator says is for the listener, whose file goes before it.
    assert "retry" not in tasks[0].fields and "time_limit" not in tasks[0].fields
    assert tasks[1].fields["time_limit"] == "3600"


def test_without_a_client_it_is_the_redis_of_the_environment_and_the_file(
    url, redis, client, clients, tmp_path, monkeypatch
):
    handler = register(named)
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    monkeypatch.setenv("BLUEQUE_CONFIG", str(tmp_path / "blueque.toml"))
    (tmp_path / "blueque.toml").write_text("[queues.video]\nretry = 2\n")

    made = [handler.enqueue({"film": 1}), handler.enqueue({"film": 2})]

    tasks = [client.get_task(task_id) for task_id in made]
    assert [Retry.parse(task.fields["retry"]) for task in tasks] == [Retry(max=2)] * 2
    assert len(clients) == 1

    monkeypatch.delenv("BLUEQUE_REDIS_URL")
    monkeypatch.delenv("REDIS_URL", raising=False)
    (tmp_path / "blueque.toml").write_text(f'redis_url = "{url}"')
    assert handler.get_queue().name == "video" and len(clients) == 2
    assert {one.url for one in clients.values()} == {url} == {Client(config=load()).url}
