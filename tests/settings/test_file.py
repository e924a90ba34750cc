"""Config: what blueque.toml says, and the key of each mistake in it."""

from __future__ import annotations

import os

import pytest

from blueque import Retry
from blueque.errors import ConfigRefused
from blueque.model.units import RETENTION, Keep
from blueque.settings.contents import Config
from blueque.settings.file import find, load, parse

WHOLE = """
redis_url = "redis://db1/0"
max_bytes = "2MiB"

[listener]
slots = 4
select = "lottery"
beat = "5s"
lost_after = 300
resources = { gpu = 2, memory = "64GiB" }
time_limit = "2h"
warm = false
preload = ["numpy"]
reuse = 100

[queues."render.4k"]
weight = 100
retry = { max = 3, backoff = "1m", on = ["OSError"] }
time_limit = "7d"
memory_limit = "8GiB"
retention = { complete = "7d", failed = "90d" }
resources = { gpu = 1 }
reuse_for = "1h"

[queues.ingest]
retry = 2

[queues.once]
retry = false
retention.cancelled = 60
"""


def refused(text):
    with pytest.raises(ConfigRefused) as caught:
        parse(text)
    return str(caught.value)


# What it says


def test_a_recurring_task_has_what_define_takes():
    (name, found), *others = parse(
        """
        [schedules."a.b"]
        queue = "reports"
        cron = "30 2 * * 1-5"
        timezone = "Europe/Berlin"
        start = 2030-01-31T08:00:00+01:00
        parameters = { kind = "daily" }
        jitter = "10m"
        keep = "2d"
        retry = { max = 3, backoff = "1m" }
        time_limit = "2h"
        lock = ["licence", 3]
        """
    ).schedules.items()

    assert (name, others) == ("a.b", [])
    assert (found.queue, found.parameters) == ("reports", {"kind": "daily"})
    start = found.options["start"]
    assert start.isoformat() == "2030-01-31T08:00:00+01:00"
    assert dict(found.options) == {
        "cron": "30 2 * * 1-5",
        "timezone": "Europe/Berlin",
        "start": start,
        "jitter": "10m",
        "keep": 2 * 86400,
        "retry": Retry(max=3, backoff=60),
        "time_limit": 7200,
        "lock": ("licence", 3),
    }


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("corn = 1", "a.corn: unknown key; did you mean cron?"),
        ("", "a.cron: a rule needs cron or every"),
        ("every = '5s'", "a.every: it must be from 10s to 366d"),
        ("every = '1h'\ncron = '* * * * *'", "a.cron: it is given together with every, and a "),
        ("cron = '1 2 3'", "a.cron: '1 2 3' has 3 fields, not five: minute, hour, "),
        ("cron = 5", "a.cron: it is a text such as '30 2 * * 1-5', not int"),
        ("every = '1h'\ntimezone = 'UTC'", "a.timezone: every has no time zone; only cron has"),
        ("cron = '* * * * *'\ntimezone = 'Berlin'", "a.timezone: 'Berlin' is not a name of the "),
        ("every = '1h'\nuntil = 2030-01-31T08:00:00", "a.until: 2030-01-31 08:00:00 has no time "),
        ("every = '1h'\noverlap = 'skp'", "a.overlap: it is 'skp'; it has to be one of "),
        ("every = '1h'\ncatch_up = 'all'", 'a.catch_up: "all" needs overlap = "allow", '),
        ("every = '1h'\njitter = '2d'", "a.jitter: it must be from 0 to 1d"),
        ("every = '1h'\nwindow = 'x'", "a.window: 'x' is not a duration"),
        ("every = '1h'\nkeep = -1", "a.keep: it is -1; it must be from 0"),
        ("every = '1h'\npriority = 500", "a.priority: priority 500 is not between -100 and 100"),
        ("every = '1h'\nretry.mx = 1", "a.retry.mx: unknown key; did you mean max?"),
        ("every = '1h'\ntime_limit = false", "a.time_limit: it must be a number, not bool"),
        ("every = '1h'\nlock = []", "a.lock: a lock is a name, or a name and a number such as"),
        (
            "every = '1h'\nparameters.day = 2030-01-31",
            'a.parameters.day: parameters["day"] is of the type date',
        ),
        ("every = '1h'\nparameters = nan", "a.parameters: it is nan, which JSON does not have"),
    ],
)
def test_a_mistake_in_a_recurring_task_is_one_sentence_with_its_key(line, sentence):
    said = refused(f"[schedules.a]\nqueue = 'reports'\n{line}")
    assert said.startswith(f"blueque.toml: schedules.{sentence}")


def test_a_recurring_task_needs_a_queue_and_a_name_with_a_dot_needs_quotes():
    assert "schedules.a.queue: it is missing" in refused("[schedules.a]\nevery = '1h'")
    assert '[schedules."a.b"]' in refused("[schedules.a.b]\nqueue = 'x'")


def test_a_whole_file_says_all_this():
    config = parse(WHOLE)
    assert (config.redis_url, config.max_bytes) == ("redis://db1/0", 2 * 2**20)
    assert dict(config.listener) == {
        "slots": 4,
        "select": "lottery",
        "beat": 5.0,
        "lost_after": 300.0,
        "resources": {"gpu": 2, "memory": 64 * 2**30},
        "warm": False,
        "preload": ["numpy"],
        "reuse": 100,
        "time_limit": 7200,
    }
    assert config.queue("render.4k") == {
        "weight": 100.0,
        "retry": Retry(max=3, backoff=60, on=["OSError"]),
        "time_limit": 7 * 86400,
        "memory_limit": 8 * 2**30,
        "retention.complete": Keep(7 * 86400.0),
        "retention.failed": Keep(90 * 86400.0),
        "resources": {"gpu": 1},
        "reuse_for": 3600.0,
    }
    assert config.queue("ingest") == {"retry": Retry(max=2)}
    assert config.queue("once") == {"retry": False, "retention.cancelled": Keep(60.0)}
    assert config.queue("another") == {}


def test_what_is_said_of_a_status_goes_before_what_is_said_of_all_queues_and_that_before_the_default():
    config = parse("""
        [retention]
        complete = { age = "1d", newest = 1_000 }
        failed = "never"
        [queues.a.retention]
        complete = { newest = 10 }
        cancelled = { age = false, newest = "never" }
        [queues.b]
        retention.failed = "2h"
    """)
    assert config.retention_of("a") == {
        "complete": Keep(None, 10, spared=86400.0),
        "cancelled": Keep(),
        "failed": Keep(),
    }
    assert config.retention_of("b") == {
        "complete": Keep(86400, 1000, spared=86400.0),
        "cancelled": RETENTION["cancelled"],
        "failed": Keep(7200),
    }
    assert config.retention_of("c")["failed"] == Keep()
    assert (
        Config().retention_of("a")
        == RETENTION
        == {
            "complete": Keep(7 * 86400, 50_000, spared=86400.0),
            "cancelled": Keep(7 * 86400, 50_000, spared=86400.0),
            "failed": Keep(90 * 86400),
        }
    )


def test_an_alias_is_the_queue_wherever_the_file_names_one():
    found = parse(
        """
        [aliases]
        old = "images.small"
        "old.2" = "images.small"

        [fanouts]
        all = ["old", "images.large"]
        """
    )

    assert found.aliases == {"old": "images.small", "old.2": "images.small"}
    assert found.fanouts == {"all": ("images.small", "images.large")}


def test_an_empty_file_says_nothing():
    assert parse("", "a file") == Config("a file")


def test_a_limit_that_is_false_is_none():
    config = parse(
        "[listener]\ntime_limit = '1d'\n[queues.A]\ntime_limit = false\nmemory_limit = false\ngrace = 0"
    )
    assert config.queue("A") == {"time_limit": None, "memory_limit": None, "grace": 0}


# Where it is


def test_the_file_is_looked_for_in_four_places_in_this_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own" / "blueque" / "blueque.toml"
    here = tmp_path / "blueque.toml"
    named = tmp_path / "named.toml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "own"), "BLUEQUE_CONFIG": ""}
    assert find(environ) in (None, "/etc/blueque/blueque.toml")
    own.parent.mkdir(parents=True)
    own.write_text("max_bytes = 1")
    assert find(environ) == str(own)
    here.write_text("max_bytes = 2")
    assert find(environ) == "blueque.toml"
    named.write_text("max_bytes = 3")
    assert find(environ | {"BLUEQUE_CONFIG": str(named)}) == str(named)
    assert [
        load(environ=environ).max_bytes,
        load(named, environ).max_bytes,
        load(own, environ).max_bytes,
    ] == [2, 3, 1]


def test_without_a_directory_of_ones_own_for_configuration_it_is_in_the_home_directory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".config" / "blueque" / "blueque.toml"
    path.parent.mkdir(parents=True)
    path.touch()
    assert find({}) == str(path)


def test_a_file_that_is_named_has_to_be_there(tmp_path):
    for given in (
        {"path": tmp_path / "none"},
        {"environ": {"BLUEQUE_CONFIG": str(tmp_path / "none")}},
    ):
        with pytest.raises(ConfigRefused, match=r"/none: cannot be read: No such file"):
            load(**given)


def test_a_file_that_leads_nowhere_is_not_passed_over_in_silence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("gone", "blueque.toml")
    with pytest.raises(ConfigRefused, match=r"^blueque\.toml: cannot be read"):
        load(environ={})


def test_an_empty_device_switches_the_file_off(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blueque.toml").write_text("nonsense")
    assert load(environ={"BLUEQUE_CONFIG": os.devnull}).queues == {}


# Mistakes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a = 1",
            "a: unknown key; the keys are redis_url, max_bytes, redis, listener, queues, retention, statistics, show, payloads, "
            "scheduler, schedules, aliases, fanouts, web",
        ),
        ("\n\n[listner]", "listner: unknown key; did you mean listener?"),
        (
            "[listener]\nslots = 2\nlost-after = 1",
            "listener.lost-after: unknown key; did you mean lost_after?",
        ),
        ("[listener]\n\nslots = 0", "listener.slots: it is 0; it must be from 1 to 1000"),
        ("[listener]\nslots = '4'", "listener.slots: it must be a whole number, not str"),
        ("listener = 4", "listener: must be a table, not a number"),
        (
            "[listener]\nselect = 'random'",
            "listener.select: 'random' is not one of ordered, round-robin, lottery, MODULE:CALLABLE",
        ),
        ("[listener]\nspool = ''", "listener.spool: must be text, not empty"),
        ("[listener]\nspool = 1979-05-27", "listener.spool: must be text, not a date or time"),
        (
            "[listener]\nbeat = '5 parsecs'",
            "listener.beat: '5 parsecs' is not a duration: write 90, 30s, 2h or 1d12h",
        ),
        ("[listener]\nbeat = true", "listener.beat: it must be a number, not bool"),
        ("[listener]\nbeat = inf", "listener.beat: it is inf; it must be from 0.001 to 3155760000"),
        ("[listener]\nwarm = 1", "listener.warm: must be true or false, not a number"),
        ("[listener]\npreload = 'numpy'", "listener.preload: must be an array of texts, not text"),
        ("[listener]\non_term = 'die'", "listener.on_term: 'die' is not one of leave, drain, stop"),
        (
            "[listener.resources]\ngpu = 1\nGPU = 2",
            "listener.resources.GPU: a resource has a name of small letters, digits, '.' and '-', not 'GPU'",
        ),
        ("[queues.a]\ngrace = false", "queues.a.grace: it must be a number, not bool"),
        (
            "[queues.a]\ngrace = 'x'",
            "queues.a.grace: 'x' is not a duration: write 90, 30s, 2h or 1d12h",
        ),
        (
            "[listener]\nbeat = 10\n\nlease = '29s'",
            "listener.lease: it is 29 s: at least three beats of 10 s are needed, 30 s",
        ),
        (
            "[listener]\nlost_after = 3\nbeat = 2",
            "listener.lost_after: it is 3 s: at least three beats of 2 s are needed, 6 s",
        ),
        (
            "\nredis_url = 'http://x'",
            "redis_url: 'http://x' is not a Redis address: redis://host:port/db, rediss://, unix:// or redis+sentinel://host,host/service",
        ),
        (
            "[listener]\ntask_redis = 'redis://h?sentinel_user=a'",
            "listener.task_redis: 'sentinel_user' is not an option of a redis:// address",
        ),
        (
            "[listener]\nexec = ['true']\n[queues.a]\nreuse = 2",
            "queues.a.reuse: a program always runs in its own process",
        ),
        (
            "[queues.a]\nexec = ['true']\nreuse = 2",
            "queues.a.reuse: a program always runs in its own process",
        ),
        ("[queues.a]\nreuse = 0", "queues.a.reuse: it is 0; it must be from 1 to 1000000000"),
        (
            "[queues.a]\nreuse_for = 0",
            "queues.a.reuse_for: it is 0; it must be from 0.001 to 3155760000",
        ),
        (
            "max_bytes = '1 zebibyte'",
            "max_bytes: '1 zebibyte' is not a size: write 65536, 64KiB or 10MB",
        ),
        (
            "[queues.a]\nweight = -1",
            "queues.a.weight: a weight is above 0 and at most 1000000000, not -1",
        ),
        ("[queues.a]\nwieght = 1", "queues.a.wieght: unknown key; did you mean weight?"),
        (
            "[queues.a.b]\nweight = 1",
            'queues.a.b: unknown key; a name with a dot is written in quotes: [queues."a.b"]',
        ),
        ("[schedules.a]\n[schedules.a]\n", "[schedules.a] is defined twice (at line 2, column 13)"),
        (
            "[schedules.a]\nparams = { n = 1 }",
            "schedules.a.params: unknown key; did you mean parameters?",
        ),
        ("[queues]\na = 1", "queues.a: must be a table, not a number"),
        (
            '[queues."render.4k"]\ntime_limit = 0',
            'queues."render.4k".time_limit: it is 0; it must be from 0.001 to 3155760000',
        ),
        ('[queues.""]', 'queues."": a queue name cannot be empty'),
        (
            "[queues.a]\nretention = { complete = '7d', done = 1 }",
            "queues.a.retention.done: unknown key; the keys are complete, cancelled, failed",
        ),
        ("[queues.a]\nretention = '7d'", "queues.a.retention: must be a table, not text"),
        (
            "[queues.a.retention]\ncomplete = '7d'\nfailed = 0",
            "queues.a.retention.failed: it is 0; it must be from 0.001 to 3155760000",
        ),
        (
            "[retention]\ncomplete = { age = '7d', newest = 0 }",
            "retention.complete.newest: it is 0; it must be from 1 to 1000000000000",
        ),
        (
            "[retention]\ncomplete = { ago = '7d' }",
            "retention.complete.ago: unknown key; did you mean age?",
        ),
        (
            "[listener]\nspool_limit = '120%'",
            "listener.spool_limit: '120%' is not a share of a disk: write 20%",
        ),
        (
            "[listener]\nlog_limit = '1KiB'",
            "listener.log_limit: '1KiB' is too small: use at least 1MiB",
        ),
        ("[retention]\nfailed = true", "retention.failed: it must be a number, not bool"),
        (
            "[queues.a]\nretry = true",
            "queues.a.retry: must be a number, a retry policy as a table, or false, not true",
        ),
        ("[queues.a]\nretry = -1", "queues.a.retry: max is -1; it must be from 0 to 1000000"),
        (
            "[queues.a]\nretry.max = 3\nretry.factor = 0",
            "queues.a.retry.factor: factor is 0; it must be from 1 to 1000",
        ),
        (
            "[queues.a.retry]\nmax = 3\n\nbackof = 1",
            "queues.a.retry.backof: unknown key; did you mean backoff?",
        ),
        (
            "[queues.a]\nretry = [\n 1 ]",
            "queues.a.retry: must be a number, a retry policy as a table, or false, not an array",
        ),
        (
            "queues.a = { weight = 1, retry = { max = 1, on = [1] } }",
            "queues.a.retry.on: on: 1 is neither an exception class nor the name of one",
        ),
        ("[listener]\ncwd = 'tasks'", "listener.cwd: 'tasks' is not one of listener, task"),
        ('aliases.a = "b"\naliases.b = "c"', "aliases.a: 'b' is an alias itself: name the queue"),
        ('aliases.a = "a"', "aliases.a: 'a' is an alias itself: name the queue"),
        (
            '[aliases]\na = "b"\n[queues.a]\nweight = 1',
            "aliases.a: [queues] has 'a' too: a name is a queue or an alias",
        ),
        ("aliases.a = 1", "aliases.a: a queue name is a str, not int"),
        ('fanouts.f = ["a", "b", "a"]', "fanouts.f: queue 'a' is there twice"),
        ('aliases.c = "a"\nfanouts.f = ["a", "c"]', "fanouts.f: queue 'a' is there twice"),
        ("web.listen = 'here'", "web.listen: 'here' is not HOST:PORT or unix:PATH"),
        ('web.prefix = "ops"', "web.prefix: 'ops' is not a path such as /blueque"),
        (
            'web.frame_ancestors = ["portal.example.com"]',
            "web.frame_ancestors: 'portal.example.com' is not an origin, such as https://portal.example.com",
        ),
        (
            'web.trust_proxy = ["0.0.0.0/0"]',
            "web.trust_proxy: 0.0.0.0/0 is every address: name those of your proxies",
        ),
        (
            'web.user_header = "X User"',
            "web.user_header: 'X User' is not the name of a header, such as X-Forwarded-User",
        ),
        ("fanouts.f = []", "fanouts.f: it is 1 to 100 queues, not 0"),
        ('fanouts.f = "a"', "fanouts.f: must be an array of texts, not text"),
        ("a = 1\nb = = 2", "Invalid value (at line 2, column 5)"),
        ("a = 1\na = 2", "Cannot overwrite a value (at end of document)"),
        ("a = [1,\n2", "Unclosed array (at end of document)"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_key(text, sentence):
    said = refused(text)
    assert said == f"blueque.toml: {sentence}"
    assert "\n" not in said


def test_an_error_names_the_key_apart():
    with pytest.raises(ConfigRefused) as caught:
        parse("[queues.a.retry]\nbackof = 1", "/etc/blueque.toml")
    error = caught.value
    assert (
        str(error) == "/etc/blueque.toml: queues.a.retry.backof: unknown key; did you mean backoff?"
    )
    assert (error.path, error.key) == ("/etc/blueque.toml", "queues.a.retry.backof")


def test_a_byte_order_mark_is_passed_over(tmp_path):
    path = tmp_path / "blueque.toml"
    path.write_bytes(b"\xef\xbb\xbfmax_bytes = 5\nlistener = 4")
    with pytest.raises(ConfigRefused, match="listener: must be a table"):
        load(path)


def test_text_that_is_not_utf_8_is_named_with_its_place(tmp_path):
    path = tmp_path / "blueque.toml"
    path.write_bytes(b"# one\n# caf\xe9\n")
    with pytest.raises(ConfigRefused) as caught:
        load(path)
    assert (caught.value.key, caught.value.path) == (None, str(path))
    assert str(caught.value) == f"{path}: byte 0xe9 at offset 11 is not UTF-8"
