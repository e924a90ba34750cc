"""blueque.connection.tls: a real server with TLS, and what certificates are refused."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from authority import DAY, Authority

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

    def url(self, **options: object) -> str:
        given = {"ssl_ca_certs": self.authority.file, **options}
        return f"rediss://127.0.0.1:{self.port}?" + "&".join(f"{k}={v}" for k, v in given.items())


@contextmanager
def serving(
    authority: Authority, valid_for: timedelta = DAY, host: str = "127.0.0.1", clients: str = "no"
) -> Iterator[TlsServer]:
    signed, key = authority.sign("server", host, valid_for)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = {
        "--tls-port": port,
        "--tls-cert-file": signed,
        "--tls-key-file": key,
        "--tls-ca-cert-file": authority.file,
        "--tls-auth-clients": clients,
    }
    with running_server(*(str(word) for pair in options.items() for word in pair)) as server:
        yield TlsServer(server, port, authority)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Iterator[TlsServer]:
    with serving(authority) as server:
        yield server


@pytest.fixture
def client(tls: TlsServer) -> Iterator[Client]:
    with closing(Client(tls.url(), patience=2)) as client:
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
    with closing(Client(tls.url())) as other:
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
    with serving(authority) as tls, closing(Client(tls.url(), patience=0)) as client:
        assert ask(client, "PING") == "PONG"
        tls.server.kill()
        with pytest.raises(RedisAway):
            ask(client, "PING")


@pytest.mark.parametrize(
    ("made", "options", "sentence"),
    [
        ({"valid_for": -DAY}, {}, "its certificate is not valid: certificate has expired"),
        (
            {"host": "127.0.0.9"},
            {},
            "its certificate is not valid: IP address mismatch, certificate is not valid for '127.0.0.1'",
        ),
        ({"clients": "yes"}, {}, "it refuses our certificate"),
    ],
    ids=["expired", "another host", "no certificate of ours"],
)
def test_a_refused_certificate_is_named_at_once(authority, made, options, sentence):
    with serving(authority, **made) as tls, closing(Client(tls.url(**options))) as client:
        with pytest.raises(RedisRefused, match=sentence) as refused:
            ask(client, "PING")

        assert f"127.0.0.1:{tls.port}" in str(refused.value)


def test_a_wait_for_an_answer_names_why_our_certificate_is_refused(authority):
    with serving(authority, clients="yes") as tls, closing(Client(tls.url())) as client:
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


def test_an_authority_that_is_not_known_is_refused(tls, tmp_path):
    other = Authority(tmp_path)
    with (
        closing(Client(tls.url(ssl_ca_certs=other.file))) as client,
        pytest.raises(RedisRefused, match="its certificate is not valid"),
    ):
        ask(client, "PING")


def test_a_server_without_tls_is_named(tls):
    with (
        closing(Client(f"rediss://127.0.0.1:{tls.server.port}", patience=0)) as client,
        pytest.raises((RedisRefused, RedisAway)),
    ):
        ask(client, "PING")


@pytest.mark.parametrize("option", ["ssl_check_hostname=false", "ssl_cert_reqs=none"])
def test_checks_can_be_left_out(authority, option):
    name, value = option.split("=")
    with (
        serving(authority, host="127.0.0.9") as tls,
        closing(Client(tls.url(**{name: value}))) as client,
    ):
        assert ask(client, "PING") == "PONG"


def test_a_client_shows_its_certificate(authority):
    certificate, key = authority.sign("client")
    with (
        serving(authority, clients="yes") as tls,
        closing(Client(tls.url(ssl_certfile=certificate, ssl_keyfile=key))) as client,
    ):
        assert ask(client, "PING") == "PONG"


def test_a_renewed_certificate_counts_for_the_next_connection(tls, tmp_path, authority):
    """The file of the authority is replaced while the client is there."""
    other, trusted = Authority(tmp_path), tmp_path / "trusted.pem"
    trusted.write_bytes(other.file.read_bytes())
    with closing(Client(tls.url(ssl_ca_certs=trusted))) as client:
        with pytest.raises(RedisRefused):
            ask(client, "PING")
        replace(trusted, authority.file)

        assert ask(client, "PING") == "PONG"


def test_files_that_are_being_renewed_do_not_stop_a_program(authority, tmp_path, caplog):
    """The certificate is there before its key, and for a moment there is none."""
    (first, first_key), (second, second_key) = authority.sign("first"), authority.sign("second")
    ours, key = tmp_path / "ours.pem", tmp_path / "ours.key"
    ours.write_bytes(first.read_bytes())
    key.write_bytes(first_key.read_bytes())

    def ask_anew() -> object:
        client.close()
        return ask(client, "ACL", "WHOAMI")

    with (
        serving(authority, clients="yes") as tls,
        closing(Client(tls.url(ssl_certfile=ours, ssl_keyfile=key))) as client,
    ):
        assert ask_anew() == "default"
        replace(ours, second)
        assert ask_anew() == ask_anew() == "default"
        (said,) = [one for one in caplog.messages if "going on with the one before" in one]
        assert f"ours.pem' with the key '{key}' cannot be used: key values mismatch;" in said
        replace(key, second_key)
        assert ask_anew() == "default"
        ours.unlink()
        assert ask_anew() == "default"
        assert "ours.pem' cannot be read" in caplog.text


def replace(path: Path, by: Path) -> None:
    before = path.stat().st_mtime_ns
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


def test_a_key_without_a_certificate_is_refused():
    with pytest.raises(InvalidInput, match="ssl_keyfile needs ssl_certfile"):
        Client("rediss://127.0.0.1?ssl_keyfile=/a")


@pytest.mark.parametrize("option", ["ssl_cert_reqs=never", "ssl_min_version=SSLv3"])
def test_an_unknown_value_is_refused_when_the_client_is_made(option):
    with pytest.raises(InvalidInput, match=f"{option.split('=')[0]} is one of"):
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
