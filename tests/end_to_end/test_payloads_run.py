"""Compressed and encrypted payloads, from the producer to the handler and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from payload_keys import SECRET, client_with, name_of, write_keys
from running import outcome, until

from blueque import Client
from blueque.connection.redis import Redis

WORK = f"""
    import blueque
    from blueque import New, Then

    SECRET = "{SECRET}"

    def work(task):
        assert task.parameters == {{"salary": SECRET}}, task.parameters
        assert task.context == {{"trace": SECRET}}, task.context
        print("printed", SECRET, flush=True)
        if task.attempt == 1:
            task.checkpoint({{"at": SECRET}})
            raise blueque.RetryLater(0)
        assert task.checkpointed == {{"at": SECRET}}, task.checkpointed
        task.spawn("later", {{"salary": SECRET}}, key="child", context={{"trace": SECRET}})
        new = New("later", {{"salary": SECRET}}, key="new", context={{"trace": SECRET}})
        return Then({{"paid": SECRET}}, [new])

    def collect(task):
        return [SECRET, *task.inputs.values()]
"""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "payload.keys", "k1")


@pytest.fixture
def sealed(url: str, keys: Path) -> Iterator[Client]:
    with client_with(url, keys=keys, compress_from=100) as client:
        yield client


@pytest.fixture
def environ_of_listeners(keys: Path) -> dict[str, str]:
    return {"BLUEQUE_PAYLOADS_KEYS": str(keys), "BLUEQUE_PAYLOADS_COMPRESS_FROM": "100"}


def everything_in(redis: Redis) -> dict[str, str]:
    """Return all that Redis has, by key, as text."""
    reads = {
        "string": ("GET",),
        "hash": ("HGETALL",),
        "list": ("LRANGE", 0, -1),
        "set": ("SMEMBERS",),
        "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
        "stream": ("XRANGE", "-", "+"),
    }
    (names,) = redis.read(("KEYS", "*"))
    found = {}
    for name in names:
        (kind,) = redis.read(("TYPE", name))
        if kind != "none":
            verb, *more = reads[kind]
            found[name] = str(redis.read((verb, name, *more)))
    return found


@pytest.mark.parametrize("options", [[], ["--reuse", "9"]])
def test_redis_has_no_piece_of_the_plain_text_in_the_whole_life_of_a_task(
    programs, sealed, redis, environ_of_listeners, options
):
    queue = sealed.get_queue("work")
    parent = queue.enqueue({"salary": SECRET}, context={"trace": SECRET}, retry=3)
    joined = sealed.get_queue("collect").enqueue(SECRET, after=parent, results=True)
    assert SECRET not in str(everything_in(redis))

    programs.listener("work:work", *options, environ=environ_of_listeners)
    programs.listener("work:collect", queue="collect", environ=environ_of_listeners)
    done, collected = outcome(sealed, parent), outcome(sealed, joined)

    assert (done.status, done.result) == ("complete", {"paid": SECRET}), done.error
    assert collected.result == [SECRET, {"paid": SECRET}], collected.error
    later = redis.read(("ZCARD", "blueque_tasks_later"))
    assert later == [2]
    lines = until(lambda: sealed.get_log(parent)[0], what="its log")
    assert f"printed {SECRET}" in [line.text for line in lines]
    found = everything_in(redis)
    assert [name for name, text in found.items() if SECRET in text] == []
    assert any("checkpoint" in name for name in found) or done.attempt == 2


def test_a_listener_without_the_keys_takes_no_encrypted_task(
    programs, sealed, client, environ_of_listeners
):
    task = sealed.get_queue("work").enqueue({"salary": SECRET}, context={"trace": SECRET})
    plain = client.get_queue("work").enqueue("in plain text")
    programs.listener("work:work")
    outcome(client, plain)
    assert client.get_task(task).status == "pending"

    programs.listener("work:work", spool="other", environ=environ_of_listeners)
    assert outcome(sealed, task).status == "complete"


def test_a_program_reads_plain_parameters_and_its_result_is_encrypted(
    programs, sealed, client, environ_of_listeners
):
    script = 'printf %s "$BLUEQUE_CONTEXT" >&2; cat'
    programs.listener("--exec", "sh", "-c", script, environ=environ_of_listeners)
    task = sealed.get_queue("work").enqueue("x" + SECRET, context={"trace": SECRET})
    assert outcome(sealed, task).result == "x" + SECRET
    lines = until(lambda: sealed.get_log(task)[0], what="its log")
    assert {line.text for line in lines} == {f'{{"trace":"{SECRET}"}}', "x" + SECRET}
    assert client.get_task(task).fields["result_encoding"] == f"aes:{name_of('k1')}"
