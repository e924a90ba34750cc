"""blueque.connection.tls: a real server with TLS, and what certificates are refused."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from authority import DAY, Authority
from sentinels import Tls, words

from blueque import Client, InvalidInput, RedisAway, RedisRefused
from blueque.connection.address import Address
from blueque.connection.tls import TlsConnection
from blueque.connection.tracked import Tracked
from blueque.protocol.transaction import prove
from blueque.system.embedded_redis import Server, running_server
from blueque.system.process import fork, wait_for


class TlsServer(NamedTuple):
    """server: with a port without TLS as well."""

    server: Server
    port: int
    authority: Authority

    def url(self, *options: str) -> str:
        """Return its address. options: NAME=VALUE, where {} is the directory of the certificates."""
        given = ["ssl_ca_certs={}/authority.pem", *options]
        more = "&".join(given).replace("{}", str(self.authority.directory))
        return f"rediss://127.0.0.1:{self.port}?{more}"

    @contextmanager
    def client(self, *options: str, patience: float = 0.0) -> Iterator[Client]:
        with closing(Client(self.url(*options), patience=patience)) as client:
            yield client


@contextmanager
def serving(authority: Authority, clients: str = "no", **made: Any) -> Iterator[TlsServer]:
    """Run a server. clients: whether they have to show a certificate. made: see Authority.sign."""
    tls = Tls(authority, **made)
    options = tls.options(0) | {"tls-auth-clients": clients}
    with running_server(*words(options)) as server:
        yield TlsServer(server, tls.ports[0], authority)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority with two certificates of clients. Beside it, there is another one."""
    directory = tmp_path_factory.mktemp("certificates")
    (directory / "other").mkdir()
    Authority(directory / "other")
    authority = Authority(directory)
    authority.sign("first")
    authority.sign("second")
    return authority


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Iterator[TlsServer]:
    with serving(authority) as server:
        yield server


@pytest.fixture
def client(tls: TlsServer) -> Iterator[Client]:
    with tls.client(patience=2) as client:
        client.connections.read(("FLUSHALL",))
        yield client


def ask(client: Client, *command: str | int) -> object:
    return client.connections.read(command)[0]


def test_the_own_socket_is_used(client):
    assert isinstance(client.connections.connection(), TlsConnection)


def test_replies_larger_than_a_record_of_tls_come_whole(client):
    large = [f"{number}:" + "x" * 30_000 for number in range(200)]
    client.connections.read(*[("RPUSH", "large", one) for one in large])

    assert ask(client, "LRANGE", "large", 0, -1) == large


def test_a_wait_takes_session_tickets_for_no_answer(tls):
    connection = TlsConnection(Address(tls.url()))
    with closing(connection):
        assert not connection.wait(0.05)
        connection.send([("PING",)])
        assert connection.wait(5)
        assert connection.receive(1) == ["PONG"]


def test_what_was_received_but_not_read_is_found_without_a_wait(client):
    """The rest of a record lies in the layer of TLS: the descriptor is not readable for it."""
    client.connections.read(("SET", "a", "x" * 10_000), ("SET", "b", "y"))
    connection = client.connections.connection()
    connection.send([("GET", "a"), ("GET", "b")])

    assert connection.receive(1) == ["x" * 10_000]
    assert connection.wait(0)
    assert connection.receive(1) == ["y"]


def test_a_blocking_read_ends_when_another_client_writes(client, tls):
    with tls.client() as other:
        connection = other.connections.connection()
        connection.send([("BLPOP", "a", 10)])
        assert not connection.wait(0)
        ask(client, "RPUSH", "a", "1")

        assert connection.wait(10)
        assert connection.receive(1) == [["a", "1"]]


def test_redis_reports_changes_of_what_was_read(client, tls):
    with closing(Tracked(lambda: TlsConnection(Address(tls.url())))) as tracked:
        assert tracked.read(("GET", "a")) == [None]
        assert tracked.changed() == set()
        ask(client, "SET", "a", "1")
        tracked.wait(10)

        assert tracked.changed() == {"a"}


def test_a_fork_leaves_the_connection_of_its_parent_alone(client):
    ask(client, "SET", "a", "1")

    def read() -> int:
        return 0 if ask(client, "GET", "a") == "1" else 1

    assert wait_for(fork(read)) == 0
    own = client.connections.connection()
    assert ask(client, "GET", "a") == "1"
    assert client.connections.connection() is own


def test_a_server_that_goes_away_is_away(authority):
    with serving(authority) as tls, tls.client() as client:
        assert ask(client, "PING") == "PONG"
        tls.server.kill()
        with pytest.raises(RedisAway):
            ask(client, "PING")


OURS = ("ssl_certfile={}/first.pem", "ssl_keyfile={}/first.key")
ELSEWHERE = "IP address mismatch, certificate is not valid for '127.0.0.1'"


@pytest.mark.parametrize(
    ("made", "options", "sentence"),
    [
        ({"valid_for": -DAY}, (), "its certificate is not valid: certificate has expired"),
        ({"host": "127.0.0.9"}, (), f"its certificate is not valid: {ELSEWHERE}"),
        ({}, ("ssl_ca_certs={}/other/authority.pem",), "its certificate is not valid"),
        ({"clients": "yes"}, (), "it refuses our certificate"),
        ({"host": "127.0.0.9"}, ("ssl_check_hostname=false",), None),
        ({"host": "127.0.0.9"}, ("ssl_cert_reqs=none",), None),
        ({"clients": "yes"}, OURS, None),
    ],
    ids=[
        "expired",
        "another host",
        "unknown authority",
        "no certificate of ours",
        "any host",
        "no checks",
        "ours is shown",
    ],
)
def test_a_refused_certificate_is_named_at_once(authority, made, options, sentence):
    with serving(authority, **made) as tls, tls.client(*options, patience=5) as client:
        if sentence is None:
            assert ask(client, "PING") == "PONG"
            return
        with pytest.raises(RedisRefused, match=sentence) as refused:
            ask(client, "PING")

        assert f"127.0.0.1:{tls.port}" in str(refused.value)


def test_a_wait_for_an_answer_names_why_our_certificate_is_refused(authority):
    with serving(authority, clients="yes") as tls, tls.client() as client:
        client.connections.has_answer = lambda connection: connection.wait(5)
        with pytest.raises(RedisRefused, match="it refuses our certificate"):
            ask(client, "PING")


def test_an_alert_behind_a_change_does_not_say_that_nothing_was_changed(client):
    connection = client.connections.connection()
    prove(connection)
    os.write(connection.fileno(), b"\x17\x03\x03\x00\x20" + b"x" * 32)  # no record of ours

    with pytest.raises(RedisAway):
        connection.receive(1)


def test_a_server_that_ends_in_the_handshake_is_away():
    """So does a proxy whose Redis is away."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end() -> None:
            accepted, _ = server.accept()
            accepted.recv(65536)  # with bytes left unread, the client would see a reset
            accepted.close()

        thread = threading.Thread(target=end)
        thread.start()
        url = f"rediss://127.0.0.1:{server.getsockname()[1]}"
        with closing(Client(url, patience=0)) as client, pytest.raises(RedisAway):
            ask(client, "PING")
        thread.join()


def test_a_server_that_does_not_answer_the_handshake_is_away():
    """So does a Redis without TLS, which waits for the end of a line."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address(f"rediss://127.0.0.1:{silent.getsockname()[1]}?ssl_cert_reqs=none", 0.1)
        with pytest.raises(RedisAway, match=r"no Redis at rediss://127.0.0.1:\d+: .* handshake"):
            TlsConnection(address)


def test_a_server_without_tls_is_named(tls):
    with (
        tls._replace(port=tls.server.port).client() as client,
        pytest.raises((RedisRefused, RedisAway)),
    ):
        ask(client, "PING")


def test_a_renewed_certificate_counts_for_the_next_connection(tls, tmp_path, authority):
    """The file of the authority is replaced while the client is there."""
    trusted = tmp_path / "trusted.pem"
    renew(trusted, authority.directory / "other" / "authority.pem")
    with tls.client(f"ssl_ca_certs={trusted}") as client:
        with pytest.raises(RedisRefused):
            ask(client, "PING")
        renew(trusted, authority.file)

        assert ask(client, "PING") == "PONG"


def test_files_that_are_being_renewed_do_not_stop_a_program(authority, tmp_path, caplog):
    """The certificate is there before its key, and for a moment there is none."""
    ours, key = tmp_path / "ours.pem", tmp_path / "ours.key"
    renew(ours, authority.directory / "first.pem")
    renew(key, authority.directory / "first.key")

    def ask_anew() -> object:
        client.close()
        return ask(client, "ACL", "WHOAMI")

    with (
        serving(authority, clients="yes") as tls,
        tls.client(f"ssl_certfile={ours}", f"ssl_keyfile={key}") as client,
    ):
        assert ask_anew() == "default"
        renew(ours, authority.directory / "second.pem")
        assert ask_anew() == ask_anew() == "default"
        (said,) = [one for one in caplog.messages if "going on with the one before" in one]
        assert f"ours.pem' with the key '{key}' cannot be used: key values mismatch;" in said
        renew(key, authority.directory / "second.key")
        assert ask_anew() == "default"
        ours.unlink()
        assert ask_anew() == "default"
        assert "ours.pem' cannot be read" in caplog.text


def renew(path: Path, by: Path) -> None:
    """Have a file be as another one, and a second newer than before."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_bytes(by.read_bytes())
    os.utime(path, ns=(before + 10**9, before + 10**9))


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("ssl_ca_certs=/no/such.pem", "the certificate '/no/such.pem' cannot be read"),
        ("ssl_ca_certs=%00", "cannot be read: (stat: )?embedded null"),
        ("ssl_ca_certs=/dev/null", "'/dev/null' cannot be used: no certificate or crl found$"),
        (
            "ssl_certfile=/dev/null",
            "'/dev/null' without ssl_keyfile cannot be used: a file does not hold what it should, or",
        ),
    ],
)
def test_a_file_that_is_no_certificate_is_named(option, sentence):
    with (
        closing(Client(f"rediss://127.0.0.1:1?{option}")) as client,
        pytest.raises(RedisRefused, match=sentence),
    ):
        ask(client, "PING")


@pytest.mark.parametrize(
    "option", ["ssl_cert_reqs=OPTIONAL", "ssl_check_hostname=False", "ssl_min_version=tlsv1.3"]
)
def test_a_value_may_be_written_as_for_redis_py(option):
    assert Address(f"rediss://127.0.0.1?{option}").tls is not None


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("ssl_keyfile=/a", "ssl_keyfile needs ssl_certfile"),
        ("ssl_cert_reqs=never", "ssl_cert_reqs is one of"),
        ("ssl_min_version=SSLv3", "ssl_min_version is one of"),
    ],
)
def test_a_wrong_option_is_refused_when_the_client_is_made(option, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        Client(f"rediss://127.0.0.1?{option}")


def test_many_threads_write_and_read_at_once(client):
    def write(number: int) -> None:
        for turn in range(50):
            ask(client, "SET", f"{number}.{turn}", "x" * 20_000)

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ask(client, "DBSIZE") == 200
