"""blueque.connection.redis: addresses, real connections of both kinds, and how they break."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
import redis as redis_py
from faults import Fault, FaultProxy
from redis.backoff import NoBackoff
from redis.retry import Retry

from blueque import Client, InvalidInput, OutcomeUnknown, RedisAway, RedisRefused
from blueque.connection import address, plain
from blueque.connection.address import hide_password
from blueque.system.embedded_redis import Server, running_server
from blueque.system.process import fork, wait_for

KINDS = [
    pytest.param(lambda server, **more: Client(server.url, **more), id="socket"),
    pytest.param(
        lambda server, **more: Client(redis=redis_py.Redis(port=server.port), **more), id="redis-py"
    ),
]


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory):
    """A server that wants a password, on TCP and on a Unix socket."""
    path = tmp_path_factory.mktemp("s") / "a b.sock"
    with running_server("--unixsocket", str(path)) as server:
        with redis_py.Redis(port=server.port) as admin:
            admin.acl_setuser(
                "us@er", enabled=True, passwords=["++p@s s/%"], keys="*", categories=["+@all"]
            )
            admin.config_set("requirepass", "p@s s/%")
        server.socket_path = str(path).replace(" ", "%20")
        yield server


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@contextmanager
def always_answering(reply):
    """A server that gives the same reply to everything but a greeting, to one client after the
    other.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            with contextlib.suppress(OSError):  # closed
                while True:
                    client, _ = listening.accept()
                    with client:
                        while data := client.recv(65536):
                            commands = data.count(b"\r\n*") + 1
                            client.sendall(
                                ((b"+OK" if b"SETINFO" in data else reply.encode()) + b"\r\n")
                                * commands
                            )

        threading.Thread(target=serve, daemon=True).start()
        port = listening.getsockname()[1]
        yield SimpleNamespace(port=port, url=f"redis://127.0.0.1:{port}")
        listening.shutdown(socket.SHUT_RDWR)  # a close alone does not wake up who accepts


@pytest.fixture
def silent_server(monkeypatch):
    """A server that reads nothing and answers nothing."""
    for module in (address, plain):
        monkeypatch.setattr(module, "REPLY_TIMEOUT", 0.05)
    monkeypatch.setattr("blueque.connection.waits.SEND_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Client(f"redis://127.0.0.1:{listening.getsockname()[1]}", patience=0)


@pytest.mark.parametrize("size", [1, 50_000_000], ids=["no answer", "no room to send"])
def test_a_server_that_stands_still_is_away_once_the_time_for_an_answer_has_passed(
    silent_server, size
):
    with closing(silent_server), pytest.raises(RedisAway, match="timed out"):
        ask(silent_server, "GET", "x" * size)


def ask(client, *command):
    """Return Redis' answer to one command on the connection of the client."""
    return client.connections.read(command)[0]


def count(cli, command):
    """Return how many times the server has executed a command since the statistics were reset."""
    return cli.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://h",
        "redis://h:port",
        "redis://h:99999",
        "redis://h/x",
        "redis://h/1/2",
        "unix:///r?db=x",
        "redis://[::1",
        "redis://:a/b@h/0",
        "redis://:12#b@h/0",
    ],
)
def test_a_bad_address_is_refused_when_the_client_is_made(url):
    with pytest.raises(InvalidInput, match="is not a Redis address"):
        Client(url)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://h?ssl_ca_certs=/a", "'ssl_ca_certs' is not an option of a redis:// address"),
        ("rediss://h?sentinel_user=a", "'sentinel_user' is not an option of a rediss:// address"),
        ("redis://h?socket_timeout=x", "not an address for redis-py: .*'socket_timeout'"),
    ],
)
def test_an_option_that_redis_py_does_not_have_is_refused_when_the_client_is_made(url, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        Client(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@h",
        "redis://user:secret@h:port",
        "redis://:secret@h/x",
        "redis://:secret/1@h",
    ],
)
def test_a_refusal_does_not_show_the_password(url):
    with pytest.raises(InvalidInput) as refusal:
        Client(url)

    assert "secret" not in str(refusal.value)


def test_a_ready_client_in_the_place_of_the_address_is_refused():
    with pytest.raises(InvalidInput, match=r"a ready client is Client\(redis=\.\.\.\)$"):
        Client(redis_py.Redis())


def test_a_server_that_is_not_there_is_away_and_its_password_is_not_shown():
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]

    with pytest.raises(RedisAway, match=rf"redis://me:\*\*\*@127\.0\.0\.1:{port}/0") as away:
        Client(f"redis://me:secret@127.0.0.1:{port}/0", patience=0).get_queue("video").enqueue("in")

    assert isinstance(away.value, ConnectionError)
    assert not isinstance(away.value, OutcomeUnknown)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h/0", "redis://h/0"),
        ("redis://me:secret@h/0", "redis://me:***@h/0"),
        ("redis://:secret@h/0", "redis://:***@h/0"),
        ("redis://me:se@cret@h/0", "redis://me:***@h/0"),
        ("unix://me:secret@/r.sock", "unix://me:***@/r.sock"),
        (
            "rediss://h?ssl_password=secret&ssl_keyfile=k",
            "rediss://h?ssl_password=***&ssl_keyfile=k",
        ),
        (
            "redis+sentinel://me:secret@a,b:1/gpu?sentinel_password=secret",
            "redis+sentinel://me:***@a,b:1/gpu?sentinel_password=***",
        ),
        (
            "rediss+sentinel://a/gpu?sentinel_pasword=secret&ssl_certfile=c",
            "rediss+sentinel://a/gpu?sentinel_pasword=***&ssl_certfile=c",
        ),
    ],
)
def test_a_password_is_hidden_wherever_an_address_is_shown(url, shown):
    assert hide_password(url) == shown


@pytest.mark.parametrize(
    "credentials", ["us%40er:+p%40s%20s%2F%25", ":p%40s%20s%2F%25", "default:p%40s%20s%2F%25"]
)
@pytest.mark.parametrize("place", ["tcp", "unix"])
def test_the_right_password_opens_the_server_and_the_database_is_selected(
    closed_server, credentials, place
):
    where = (
        f"127.0.0.1:{closed_server.port}/3"
        if place == "tcp"
        else f"{closed_server.socket_path}?db=3"
    )
    client = Client(f"{'redis' if place == 'tcp' else 'unix'}://{credentials}@{where}", patience=0)

    with closing(client):
        assert " db=3 " in ask(client, "CLIENT", "INFO")


@pytest.mark.parametrize(
    ("user", "code"), [("", "NOAUTH"), (":wrong@", "WRONGPASS"), ("no:wrong@", "WRONGPASS")]
)
def test_a_wrong_password_is_refused_at_once(closed_server, user, code):
    client = Client(f"redis://{user}127.0.0.1:{closed_server.port}/0", patience=60)

    with pytest.raises(RedisRefused) as refusal:
        client.get_queue("video").enqueue("in")

    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("options", "code"), [({}, "NOAUTH"), ({"password": "no"}, "WRONGPASS")], ids=repr
)
def test_a_wrong_password_of_a_ready_client_is_refused_at_once(closed_server, options, code):
    client = Client(redis=redis_py.Redis(port=closed_server.port, **options), patience=0)

    with pytest.raises(RedisRefused) as refusal:
        client.get_queue("video").enqueue("in")

    assert refusal.value.code == code


def test_a_database_that_does_not_exist_is_refused(server):
    with pytest.raises(RedisRefused, match="out of range"):
        Client(f"redis://127.0.0.1:{server.port}/99", patience=60).get_queue("video").enqueue("in")


@pytest.mark.parametrize("code", ["LOADING", "UNBLOCKED", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN"])
def test_a_server_that_answers_not_now_is_as_good_as_away(kind, code):
    with always_answering(f"-{code} not now") as server, pytest.raises(RedisAway, match="not now"):
        kind(server, patience=0).get_task("t1")


def test_a_connection_that_died_while_idle_is_replaced_without_an_error(own_server: Server, kind):
    client = kind(own_server, patience=5)
    first = client.get_queue("video").enqueue("in")
    own_server.kill()
    own_server.start()

    second = client.get_queue("video").enqueue("in")

    assert client.get_inspector().pending("video") == 2
    assert [client.get_task(task).status for task in (first, second)] == ["pending", "pending"]


def test_without_patience_a_dead_connection_is_an_error_once(own_server: Server, kind):
    client = kind(own_server, patience=0)
    client.get_task("t1")
    own_server.kill()
    own_server.start()

    with pytest.raises(RedisAway):
        client.get_task("t1")
    assert client.get_task("t1").status is None


def test_a_server_that_goes_away_is_away_until_it_is_back(own_server: Server, kind):
    client = kind(own_server, patience=0.1)
    client.get_queue("video").enqueue("in")
    own_server.kill()

    with pytest.raises(RedisAway):
        client.get_queue("video").enqueue("in")
    own_server.start()

    client.get_queue("video").enqueue("in")
    assert client.get_inspector().pending("video") == 2


def test_a_fork_has_its_own_connection_and_that_of_its_parent_goes_on(server, kind, tmp_path):
    client = kind(server, patience=0)
    ours = ask(client, "CLIENT", "ID")
    client.get_queue("video").enqueue("parent's first, which leaves a spare id behind")
    told = tmp_path / "id"

    def child():
        client.get_queue("video").enqueue("child's")
        told.write_text(str(ask(client, "CLIENT", "ID")))
        return 0

    assert wait_for(fork(child)) == 0
    assert int(told.read_text()) != ours
    client.get_queue("video").enqueue("parent's second")
    assert ask(client, "CLIENT", "ID") == ours
    assert client.get_inspector().pending("video") == 3


def test_each_thread_has_its_own_connection(server, kind):
    client = kind(server, patience=0)
    seen = [ask(client, "CLIENT", "ID")]
    threads = [
        threading.Thread(target=lambda: seen.append(ask(client, "CLIENT", "ID"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(seen)) == 4
    assert ask(client, "CLIENT", "ID") == seen[0]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interruption_between_a_command_and_its_reply_closes_the_connection(
    server, kind, monkeypatch, interruption
):
    client = kind(server, patience=0)
    connection = client.connections.connection()

    def interrupt(count):
        raise interruption

    monkeypatch.setattr(connection, "receive", interrupt)
    with pytest.raises(interruption):
        ask(client, "ECHO", "of the interrupted")

    assert connection.is_closed
    assert ask(client, "ECHO", "of the next") == "of the next"


def test_wait_tells_whether_something_can_be_received(server, kind):
    connection = kind(server, patience=0)._redis.connection()

    assert connection.wait(0) is False
    connection.send([("ECHO", "one"), ("ECHO", "two")])
    assert connection.wait(5) is True
    assert connection.receive(2) == ["one", "two"]
    assert connection.wait(0) is False


def test_the_retries_of_a_ready_client_are_not_used(server, cli):
    proxy = FaultProxy(server.url)
    ready = redis_py.Redis.from_url(
        proxy.url, retry=Retry(NoBackoff(), 5), retry_on_error=[Exception]
    )
    client = Client(redis=ready, patience=0)
    client.get_task("t1")
    cli.config_resetstat()
    proxy.arm(Fault.CUT_AFTER, having=b"LPUSH")

    with closing(proxy), pytest.raises(OutcomeUnknown):
        client.get_queue("video").enqueue("in")

    assert count(cli, "lpush") == 1


def test_an_address_with_options_of_redis_py_goes_through_redis_py(server):
    client = Client(f"{server.url}?client_name=ours", patience=0)
    assert " name=ours " in ask(client, "CLIENT", "INFO")

    client = Client(server.url, patience=0, client_name="yours")
    assert " name=yours " in ask(client, "CLIENT", "INFO")


def test_a_client_takes_an_address_or_a_ready_client_and_not_both(server):
    with pytest.raises(InvalidInput, match="not both"):
        Client(server.url, redis=redis_py.Redis())
    with pytest.raises(InvalidInput, match="not both"):
        Client(redis=redis_py.Redis(), socket_timeout=3)


@pytest.mark.parametrize("password", ["a/b", "a#b", "a?b", "12/b", "12#b"])
def test_a_password_with_a_character_of_addresses_is_refused_with_how_to_write_it(password):
    with pytest.raises(InvalidInput, match="write / # \\? @ % as %2F %23 %3F %40 %25") as refused:
        Client(f"redis://app:{password}@h:6379/0")

    assert password not in str(refused.value)
    Client("redis://app:a%2Fb@h:6379/0")
