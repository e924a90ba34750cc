"""Functions that register themselves as handlers: how they are called, and how they enqueue."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
import re
import signal
import time
import typing

import pytest

import blueque
from blueque import Client, InvalidInput, InvalidType, Retry
from blueque.settings.file import load
from blueque.task_process import registered
from blueque.task_process.handlers import unfit
from blueque.task_process.running_task import RunningTask
from blueque.testing import drain, run_task


@pytest.fixture(autouse=True)
def clients(monkeypatch):
    """Leave no handler registered, and no client connected. These are the clients by their address."""
    clients = {}
    monkeypatch.setattr(registered, "registered", [])
    monkeypatch.setattr(registered, "default_clients", clients)
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


@blueque.handler("at.the.top")  # forks of other tests in this process have it, too
def at_the_top(task, film):
    return film


def test_a_decorated_function_is_called_as_it_was_written():
    handler = register(named)

    assert handler(task("1"), "Metropolis") == ["t", "Metropolis"]
    assert (handler.__name__, handler.__doc__) == ("named", "Encode a film.")
    assert handler.__module__ == __name__
    assert handler.queue == "video"
    assert repr(handler) == f"<QueueHandler {__name__}:named of queue 'video'>"
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
            r":named has a decorator already; .*: @blueque.handler\('video', 'audio'\)$",
        ),
    ],
)
def test_a_mistake_is_told_where_it_is_made(mistake, error, sentence):
    with pytest.raises(error, match=sentence):
        mistake()


@dataclasses.dataclass
class Film:
    title: str
    minutes: int = 90


class Other:
    """JSON has none, and nothing says how to build one."""


def annotated(kind, result=None):
    def encode(task, film):
        return film

    encode.__annotations__ = {"film": kind, "return": result}
    return register(encode)


@pytest.mark.parametrize("kind", [Other, "Other", list[Other], dict[str, typing.Callable], complex])
def test_a_class_that_cannot_be_built_from_json_is_refused_where_it_is_annotated(kind):
    for refused in (lambda: annotated(kind), lambda: annotated(dict, kind)):
        with pytest.raises(InvalidType, match=r"^no \w+ can be built from JSON: annotate a dict"):
            refused()


def passing(function):
    @functools.wraps(function)
    def passes_all(*arguments): ...

    return passes_all


class Passing:
    def __init__(self, function):
        functools.update_wrapper(self, function)

    def __call__(self, *arguments): ...


class PassingWithTask(Passing):
    def __call__(self, task, *arguments): ...


class Films:
    def encode(self, task: RunningTask, film: Film): ...

    wrapped, __call__ = passing(encode), encode


def test_a_method_has_its_annotations_and_a_wrapper_that_passes_all_on_those_of_its_function():
    def encode(task, film: Film): ...

    @functools.wraps(encode)
    def names_its_own(task, film): ...

    films = Films()  # of its methods, the task is the second argument
    instances = (Passing(passing(encode)), PassingWithTask(encode))
    for function in (passing(encode), *instances, films.wrapped, films.encode, films):
        assert register(function).types.parameters is not None
    for function in (names_its_own, functools.partial(encode, film=None)):
        assert register(function).types.parameters is None


def test_a_class_may_come_after_the_handler_in_its_module_but_not_be_missing(monkeypatch):
    handler = annotated("Later", "Later")

    for use in (lambda: handler.enqueue(None), lambda: run_task(handler)):
        with pytest.raises(InvalidInput, match=f"annotations of {__name__}:.*encode name 'Later'"):
            use()
    monkeypatch.setitem(globals(), "Later", Film)
    assert run_task(handler, Film("M")).result == Film("M")


@pytest.mark.parametrize(
    ("written", "why"), [("list[", "was never closed"), ("time.Film", "has no attribute")]
)
def test_an_annotation_that_cannot_be_read_is_named_with_its_function(written, why):
    named = f"^the annotation '{re.escape(written)}' of {__name__}:.*encode cannot be read: .*{why}"
    for kinds in ((written,), (dict, written)):
        with pytest.raises(InvalidType, match=named):
            annotated(*kinds)


def test_a_handler_gets_the_annotated_class_and_its_result_comes_back_as_one(client):
    handler = annotated(Film, Film | None)

    many = handler.enqueue_many([Film("N"), Film("O")], keys="title", client=client)
    again = handler.enqueue_many([Film("O")], keys="title", client=client, ids=True)
    keyed = [
        [*handler.get_queue(client).enqueue_iter([Film("N")], keys=lambda film: film.title)],
        [*handler.get_queue(client).schedule_iter([Film("P")], time.time() - 1)],
    ]
    ids = [handler.enqueue(Film("M"), client=client), keyed[0][0][0], keyed[1][0][0]]

    ended = drain(client, [handler])
    assert many.new == 2 and not ids[1].is_new
    assert [each.result for each in ended] == [Film("N"), Film("O"), Film("P"), Film("M")]
    assert not again[0].is_new and client.wait(again)[0].result == Film("O")
    found = client.wait(ids)
    assert [task.result for task in found] == [Film("M"), Film("N"), Film("P")]
    assert client.get_task(ids[0]).wait().result == Film("M")
    assert client.get_task(handler.task_id(str(ids[0]))).result == Film("M")
    with pytest.raises(InvalidType, match="an id is text, not NoneType"):
        handler.task_id(None)
    for copied in (copy.copy(ids[0]), copy.deepcopy(ids)[0]):
        assert client.wait(copied).result == Film("M")
    for untyped in (client.get_task(str(ids[0])), pickle.loads(pickle.dumps(found[0]))):
        assert untyped.result == {"title": "M", "minutes": 90}
    assert pickle.loads(pickle.dumps(ids[1])).is_new is False


def test_what_does_not_fit_is_refused_before_anything_is_sent(client, redis):
    handler = annotated(Film)

    for refused, place in [
        (lambda: handler.enqueue({"title": 3}, client=client), "parameters.title"),
        (lambda: handler.schedule(Film("M", None), 4e9, client=client), "parameters.minutes"),
        (
            lambda: handler.enqueue_many([Film("M"), Film(3)], client=client),
            "the parameters at position 1: parameters.title",
        ),
        (lambda: run_task(handler, Film(3)), "parameters.title"),
    ]:
        with pytest.raises(InvalidType, match=f"^{place}: expected (str|int), got (int|null|str)"):
            refused()
    assert redis.read(("DBSIZE",)) == [0]


@pytest.mark.parametrize("make", [lambda value: value, lambda value: blueque.Then(value, [])])
def test_a_result_that_does_not_fit_fails_the_task(make):
    async def encode(task, film):
        return make(film)

    encode.__annotations__ = {"return": blueque.Then[Film] | Film}

    assert run_task(register(encode), {"title": "M"}).result == Film("M")
    assert annotated(Film, typing.Never).types.result is None
    ended = run_task(register(encode), {"title": 3})
    assert (ended.outcome, ended.error_type) == ("failed", "result")
    assert ended.error == "result.title: expected str, got int"


def test_a_handler_is_not_called_for_parameters_that_do_not_fit_and_its_task_not_retried(client):
    handler = blueque.handler("video", retry=3)(annotated(Film).function)
    wrong = client.get_queue("video").enqueue({"titel": "M"})

    (ended,) = drain(client, [handler])

    assert (ended.outcome, ended.exception) == ("failed", None)
    sentence = "parameters: object missing required field title"
    task = client.get_task(wrong)
    assert (task.status, task.error, task.error_type) == ("failed", sentence, "InvalidType")


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


def test_a_handler_of_several_queues_enqueues_to_the_first_or_to_one_that_is_named(client):
    handler = blueque.handler("video", "urgent", retry=3)(alone)
    assert repr(handler).endswith("of queues 'video', 'urgent'>")

    ids = [
        handler.enqueue(1, client=client),
        handler.enqueue(2, client=client, queue="urgent"),
        *handler.enqueue_many([3], client=client, queue="urgent", ids=True),
        handler.schedule(4, 0, client=client, queue="urgent"),
    ]
    with pytest.raises(
        InvalidInput, match="is the handler of queues 'video', 'urgent', not of 'x'"
    ):
        handler.enqueue(1, client=client, queue="x")

    assert [client.get_task(each).queue for each in ids] == ["video"] + ["urgent"] * 3
    assert sorted(ended.result for ended in drain(client, [handler])) == [1, 2, 3, 4]


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
