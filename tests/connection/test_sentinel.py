"""blueque.connection.sentinel: the primary is found, and one that was replaced is left."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
import redis as redis_py
from running import until
from sentinels import SERVICE, Sentinels, watched

from blueque import Client, InvalidInput, RedisAway, RedisRefused
from blueque.connection import plain, sentinel
from blueque.connection.address import Address
from blueque.connection.sentinel import SentinelAddress


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    with watched(tmp_path_factory.mktemp("sentinels"), 1, 1) as service:
        yield service


@pytest.fixture
def client(service: Sentinels) -> Iterator[Client]:
    with closing(Client(service.url, patience=20)) as client:
        yield client


@pytest.fixture
def open_client() -> Iterator[Callable[[str], Client]]:
    """Return a client with an address that does not try again."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(closing(Client(url, patience=0)))


def port_of(client: Client) -> int:
    (info,) = client.connections.read(("INFO", "server"))
    return int(info.partition("tcp_port:")[2].split()[0])


@pytest.mark.parametrize(
    ("part", "other"),
    [("", ""), ("//", "//127.0.0.1:1,"), ("?", "?db=3&"), (f"/{SERVICE}", "/%67pu")],
    ids=["as it is", "a Sentinel is away", "a database", "a quoted name"],
)
def test_a_client_finds_the_primary(service, open_client, part, other):
    client = open_client(service.url.replace(part, other, 1))

    assert port_of(client) == service.primary().port


def test_a_connection_asks_again_and_leaves_a_server_that_was_replaced(
    client, service, monkeypatch
):
    monkeypatch.setattr(sentinel, "ASK_EVERY", 0.0)
    before = port_of(client)
    own = client.connections.connection()
    with redis_py.Redis(port=before) as old:
        old.config_set("min-replicas-to-write", 0)
        new = service.fail_over()

        assert port_of(client) == new.port != before
        assert own.is_closed


@pytest.mark.parametrize("is_new", [False, True])
def test_a_primary_that_stands_still_is_left_when_another_is_named(
    client, service, monkeypatch, is_new
):
    """However long an answer may take; is_new: on a connection that is made meanwhile."""
    monkeypatch.setattr(plain, "REPLY_TIMEOUT", 3600.0)
    queue = client.get_queue("video")
    until(service.is_whole, 60, "a replica that has all")
    if not is_new:
        queue.enqueue("before")
    old = service.primary()

    service.freeze(old)
    try:
        queue.enqueue("after")
        assert service.primary() is not old
    finally:
        service.heal(old, at_once=True)


def test_a_change_after_a_failover_is_made_at_the_new_primary_once(client, service, monkeypatch):
    monkeypatch.setattr(sentinel, "ASK_EVERY", 0.0)
    queue = client.get_queue("video")
    queue.enqueue("before")
    with redis_py.Redis(port=service.primary().port) as old:
        old.wait(1, 10_000)
    new = service.fail_over()

    task = queue.enqueue("after")

    with redis_py.Redis(port=new.port, decode_responses=True) as admin:
        assert admin.lrange("blueque_pending_tasks_video", 0, -1).count(task) == 1


@pytest.mark.parametrize(
    ("url", "error", "sentence"),
    [
        (
            "redis+sentinel://127.0.0.1:1,127.0.0.1:2",
            RedisAway,
            "no Sentinel answers: 127.0.0.1:1: .*refused; 127.0.0.1:2: ",
        ),
        ("redis+sentinel://{silent}/gpu", RedisAway, "no Sentinel answers: {silent}: gave up"),
        ("{url}", RedisRefused, "does not know service 'other'"),
        ("{url}x", RedisRefused, "the Sentinel at {sentinel} refused: WRONGPASS"),
        (
            "redis+sentinel://{server}/gpu",
            RedisRefused,
            "the Sentinel at {server} refused .*unknown command",
        ),
    ],
    ids=["none", "one stands still", "another service", "another password", "a server"],
)
def test_what_is_wrong_with_sentinels_is_named(service, open_client, url, error, sentence):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = {
            "silent": f"127.0.0.1:{silent.getsockname()[1]}",
            "sentinel": f"127.0.0.1:{service.ports[0]}",
            "server": f"127.0.0.1:{service.primary().port}",
            "url": service.url.replace(SERVICE, "other"),
        }
        client = open_client(url.format(**places))
        with pytest.raises(error, match=sentence.format(**places)):
            client.get_task("t")


def test_a_server_that_says_that_it_is_a_replica_is_away(service, open_client, monkeypatch):
    """Sentinel may name a server before that is the primary."""
    (replica,) = [port for port in service.servers if port != service.primary().port]
    with redis_py.Redis(port=replica) as admin:
        until(lambda: admin.role()[0] == b"slave", what="a replica")
    monkeypatch.setattr(SentinelAddress, "ask", lambda self: ("127.0.0.1", replica))
    client = open_client(service.url)
    with pytest.raises(RedisAway, match="is not the primary of gpu yet"):
        client.get_task("t")


def test_a_sentinel_that_knows_no_failover_is_asked_last(service, monkeypatch):
    """It was cut off from the others, and names a server that has become a replica."""
    (replica,) = [port for port in service.servers if port != service.primary().port]
    client = Client(service.url.replace("//", "//127.0.0.1:1,", 1), patience=20)
    ask_one = SentinelAddress.ask_one

    def ask(address: SentinelAddress, sentinel: Address) -> tuple[str, int]:
        cut_off = sentinel.place == "127.0.0.1:1"
        return ("127.0.0.1", replica) if cut_off else ask_one(address, sentinel)

    monkeypatch.setattr(SentinelAddress, "ask_one", ask)
    with closing(client):
        assert port_of(client) == service.primary().port


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis+sentinel://", "'{}' is not an address of Sentinels"),
        ("redis+sentinel:///gpu", "'{}' is not an address of Sentinels"),
        ("redis+sentinel://h:x/gpu", "'{}' is not an address of Sentinels"),
        ("redis+sentinel://h,/gpu", "'{}' is not an address of Sentinels"),
        ("redis+sentinel://[::1/gpu", "'{}' is not an address of Sentinels"),
        ("redis+sentinel://h/gpu/0/1", "'{}' is not an address of Sentinels"),
        ("redis+sentinel://h/gpu/x", "'{}' is not an address of Sentinels"),
        ("redis+sentinel://h/0/gpu", "'{}' is not an address of Sentinels"),
        ("redis+sentinel://h/gpu?a=1", "'a' is not an option of a redis+sentinel:// address"),
        ("redis+sentinel://h/gpu?ssl_cert_reqs=none", "'ssl_cert_reqs' is not an option"),
        ("redis+sentinel://h/gpu?socket_timeout=3", "'socket_timeout' is not an option"),
        ("rediss+sentinel://h/gpu?ssl_ca=1", "'ssl_ca' is not an option of a rediss+sentinel://"),
        (
            "rediss+sentinel://h/gpu?ssl_cert_reqs=never",
            "'{}' is not an address of Sentinels: ssl_cert_reqs is one of required, optional, none",
        ),
        ("redis+sentinel://h:99999/gpu", "'{}' is not an address of Sentinels: host or port"),
    ],
)
def test_a_bad_address_is_named_when_the_client_is_made(url, sentence):
    with pytest.raises(InvalidInput) as refused:
        Client(url)

    assert sentence.format(url) in str(refused.value)


@pytest.mark.parametrize(
    ("url", "primary", "sentinels"),
    [
        ("redis+sentinel://a, b:1", "redis://1.2.3.4:5/0", ["redis://a:26379", "redis://b:1"]),
        (
            "rediss+sentinel://u:p%40@[::1]:7/gpu/3?ssl_cert_reqs=none&sentinel_user=s&sentinel_password=q/",
            "rediss://u:***@1.2.3.4:5/3?ssl_cert_reqs=none",
            ["rediss://s:***@[::1]:7?ssl_cert_reqs=none"],
        ),
    ],
)
def test_an_address_has_all_that_one_of_a_server_has(url, primary, sentinels):
    address = SentinelAddress(url)

    assert address.primary("1.2.3.4", 5).shown == primary
    assert [one.shown for one in address.sentinels] == sentinels
