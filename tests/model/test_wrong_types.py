"""A key that another program has written, of a wrong type: every look names it, and shows
everything else.
"""

from __future__ import annotations

import json
import os

import in_process
import pytest
from transactions import protocol

from blueque import RedisRefused
from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.wrong_types import WrongTypes, empty, is_look

QUEUES = ["audio", "video"]
# The keys of a queue, and what they are; one of a wrong type is a set, or a string if it should be
# a set.
OF_A_QUEUE = {
    "archive": "hash",
    "complete": "list",
    "failed": "list",
    "cancelled": "list",
    "pending": "list",
    "scheduled": "zset",
    "started": "set",
    "listeners": "set",
    "nodes": "zset",
    "lines": "zset",
    "settings": "hash",
    "feeds": "zset",
    "tasks": "zset",
    "counted": "set",
    "totals": "hash",
    "events": "stream",
}
VERBS = [
    "status",
    "ls",
    "ls --state complete",
    "host ls",
    "queue ls",
    "stats",
    "failures",
    "timeline",
    "schedule ls",
    "show t-video",
    "why t-video",
    "history t-video",
    "metrics --once",
    "group ls",
]


@pytest.fixture
def environ(server):
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BLUEQUE_", "REDIS_", "COLUMNS"))
    }
    return kept | {"BLUEQUE_REDIS_URL": server.url, "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def run(environ):
    return lambda words: in_process.run(words.split(), environ)


@pytest.fixture(autouse=True)
def _tasks(redis):
    for queue in QUEUES:
        protocol.enqueue(redis, queue, f"t-{queue}", "{}", 1.0, {"parameters_encoding": "json"})


def spoil(cli, key, kind):
    """Put a value of a wrong type there; return its type."""
    cli.delete(key)
    if kind == "set":
        cli.set(key, "of another program")
        return "string"
    cli.sadd(key, "of another program")
    return "set"


@pytest.mark.parametrize(("name", "kind"), OF_A_QUEUE.items())
def test_doctor_names_it_as_a_finding_with_its_type(run, cli, name, kind):
    key = getattr(keys, name)("audio")
    found = spoil(cli, key, kind)

    for words in ("doctor --settle 0.01 --json", "doctor --settle 0.01 --json --fix"):
        result = run(words)

        assert result.returncode == 75
        findings = [
            finding for finding in json.loads(result.stdout)["findings"] if finding["key"] == key
        ]
        assert [finding["code"] for finding in findings] == ["wrong_type"]
        assert f"{key} is a {found}, not a {kind}" in findings[0]["sentence"]
        assert result.stderr == ""


@pytest.mark.parametrize(("name", "kind"), OF_A_QUEUE.items())
def test_every_other_look_shows_the_rest_and_names_it_once(run, cli, name, kind):
    key = getattr(keys, name)("audio")
    found = spoil(cli, key, kind)

    for words in VERBS:
        result = run(words)

        assert result.returncode == 0, (words, result.stderr)
        assert "WRONGTYPE" not in result.stdout + result.stderr
        assert result.stderr.count(key) in (0, 1), words
        if key in result.stderr:
            assert (
                f"blueque: {key} is a {found}, which Blueque does not keep there: it was taken"
                in result.stderr
            )
    assert "t-video"[:8] in run("ls").stdout


@pytest.mark.parametrize("words", ["status", "status --json", "status --check", "queue ls"])
def test_one_queue_with_such_a_key_hides_no_other(run, cli, words):
    cli.set("blueque_complete_tasks_other3", "x")
    cli.zadd(keys.QUEUES, {"other3": 0})

    result = run(words)

    assert "video" in result.stdout
    assert "other3" in result.stdout
    assert result.stderr.splitlines() == [
        "blueque: blueque_complete_tasks_other3 is a string, which Blueque does not keep there: it was taken for empty. "
        "See: blueque doctor"
    ]
    assert result.returncode == (75 if "--check" in words else 0)


def test_a_change_refuses_it_and_names_it(run, cli):
    cli.delete(keys.pending("audio"))
    cli.set(keys.pending("audio"), "x")

    result = run("enqueue audio {}")

    assert result.returncode == 78
    assert f"LPUSH {keys.pending('audio')}: WRONGTYPE" in result.stderr


@pytest.mark.parametrize(
    "look",
    [
        ("GET", "a"),
        ("HGET", "a", "f"),
        ("LINDEX", "a", 0),
        ("LPOS", "a", "x"),
        ("ZRANK", "a", "x"),
        ("ZSCORE", "a", "x"),
        ("HEXISTS", "a", "f"),
        ("HLEN", "a"),
        ("LLEN", "a"),
        ("SCARD", "a"),
        ("SISMEMBER", "a", "x"),
        ("XLEN", "a"),
        ("ZCARD", "a"),
        ("ZCOUNT", "a", 0, 1),
        ("HMGET", "a", "f", "g"),
        ("ZMSCORE", "a", "x", "y"),
        ("HGETALL", "a"),
        ("HKEYS", "a"),
        ("HVALS", "a"),
        ("LRANGE", "a", 0, -1),
        ("SMEMBERS", "a"),
        ("SRANDMEMBER", "a", 3),
        ("XRANGE", "a", "-", "+"),
        ("XREVRANGE", "a", "+", "-"),
        ("ZRANDMEMBER", "a", 3),
        ("ZRANGE", "a", 0, -1),
        ("ZRANGEBYSCORE", "a", 0, 1),
        ("ZREVRANGE", "a", 0, -1),
        ("ZREVRANGEBYSCORE", "a", 1, 0),
        ("SSCAN", "a", 0),
        ("ZSCAN", "a", 0),
    ],
    ids=lambda look: look[0],
)
def test_what_is_taken_for_empty_is_what_redis_answers_when_there_is_nothing(
    redis: Redis, cli, look
):
    (answer,) = redis.read(look)
    assert is_look(look)
    assert empty(look) == answer

    cli.xadd("a", {"f": 1}) if look[0] != "XLEN" and not look[0].startswith("X") else cli.set(
        "a", 1
    )
    with pytest.raises(RedisRefused, match=f"{look[0]} a: WRONGTYPE"):
        redis.read(look)
    redis.wrong_types = WrongTypes()
    assert redis.read(("PING",), look, ("PING",)) == ["PONG", answer, "PONG"]
    assert redis.read(("MULTI",), look, ("PING",), ("EXEC",), ("PING",))[-2:] == [
        [answer, "PONG"],
        "PONG",
    ]
    assert list(redis.wrong_types.kinds) == ["a"]
