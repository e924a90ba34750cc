"""The Redis of chaos: one server, or a service behind Sentinel with TLS; and the network to it."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias
from unittest import mock

import redis as redis_py
from authority import Authority
from sentinels import Sentinels, Tls, watched
from wire import ANSWER, Wire

from blueque.system import embedded_redis
from blueque.system.embedded_redis import Server, running_server

# Nothing may be lost when a server is killed.
SAVED = ("--appendonly", "yes", "--appendfsync", "always")
REPLICAS, SENTINELS = 2, 3
# Longer than chaos lets a server be away: Sentinel would name a replica that has not all.
DOWN_AFTER = 15_000  # milliseconds
LOADED = 120.0  # seconds that a busy machine may take to load what a server has saved


class Network(NamedTuple):
    """A way of one node to Redis. url: what the node is given. wires: all that it leads through."""

    url: str
    wires: list[Wire]


class Alone:
    """One server without TLS. url: without a wire in between."""

    def __init__(self, server: Server) -> None:
        self._server, self.url = server, server.url

    def primary(self) -> Server:
        return self._server

    def network(self) -> Network:
        wire = Wire(self._server.port)
        return Network(wire.url, [wire])


class Watched:
    """A primary, replicas and Sentinels, all with TLS."""

    def __init__(self, sentinels: Sentinels, tls: Tls) -> None:
        self.sentinels, self._tls, self.url = sentinels, tls, sentinels.url

    def primary(self) -> Server:
        return self.sentinels.primary()

    def network(self) -> Network:
        places = self._tls.ports
        servers = {places[port]: Wire(places[port], port) for port in self.sentinels.servers}
        named = {place: wire.port for place, wire in servers.items()}
        own = [_SentinelWire(port, self._tls, named) for port in self.sentinels.ports]
        url = self.sentinels.url_by([wire.port for wire in own])
        return Network(url, [*servers.values(), *own])

    # How a person replaces a primary and loses nothing: no write is acknowledged that a replica has not

    def refuse_writes(self) -> Server | None:
        """Have the primary refuse writes, and return it; None if it has not all of its replicas."""
        primary = self.primary()
        if not self._is_whole(primary):
            return None
        self._let_write(primary, False)
        return primary

    def replace(self, before: Server) -> bool:
        """Have another server be the primary, once it has all that this one has; tell whether that is
        done. To be called until it is.

        Sentinel gives up a failover that takes long, so it is told again. It would leave the old one
        as it is for ten seconds more.
        """
        primary = self.primary()
        with _client(before.port) as admin:
            role, *rest = admin.role()
            if role == "master" and primary is not before:
                admin.replicaof("127.0.0.1", str(self.sentinels.place(primary)))
            elif role == "master" and all(int(each[2]) == rest[0] for each in rest[1]):
                self.sentinels.begin_replacing()
        if role != "master":
            self._let_write(before, True)
        return role != "master"

    def _is_whole(self, primary: Server) -> bool:
        with _client(primary.port) as admin:
            _, _, replicas = admin.role()
        # One that writes its file anew would lose by a kill what is only in the new one.
        return len(replicas) == REPLICAS and not any(
            self._is_writing(server) for server in self.sentinels.servers.values()
        )

    def _is_writing(self, server: Server) -> bool:
        with _client(server.port) as admin:
            return bool(admin.info("persistence")["aof_rewrite_in_progress"])

    def _let_write(self, server: Server, is_so: bool) -> None:
        with _client(server.port) as admin:
            admin.config_set("min-replicas-to-write", 0 if is_so else REPLICAS + 1)


class _SentinelWire(Wire):
    """To a Sentinel with TLS, which names servers: a client is to find their wires.

    ports: of the wires, by those of the servers.
    """

    def __init__(self, port: int, tls: Tls, ports: dict[int, int]) -> None:
        self._ports = {b"\r\n%d\r\n" % old: b"\r\n%d\r\n" % new for old, new in ports.items()}
        assert all(len(old) == len(new) for old, new in self._ports.items())
        self._ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ours.load_cert_chain(tls.certificate, tls.key)
        self._theirs = ssl.create_default_context(cafile=str(tls.authority.file))
        for context in (self._ours, self._theirs):
            # In later ones, what can be read may be no data, and a read would wait for some.
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        super().__init__(port)

    def _connect(self, client: socket.socket) -> None:
        client.settimeout(ANSWER)
        with self._ours.wrap_socket(client, server_side=True) as own:
            plain = socket.create_connection(self._server, ANSWER)
            with self._theirs.wrap_socket(plain, server_hostname="127.0.0.1") as server:
                self._forward(own, server)

    def answer_strikes(self, server: socket.socket, data: bytes) -> bool:
        return False  # a Sentinel has no transactions

    def _named(self, data: bytes) -> bytes:
        for old, new in self._ports.items():
            data = data.replace(old, new)
        return data


def start_again(server: Server) -> None:
    """Start a server that was killed, as what it was."""
    with mock.patch.object(embedded_redis, "START_TIMEOUT", LOADED):
        server.start()


def _client(port: int) -> redis_py.Redis:
    return redis_py.Redis(port=port, decode_responses=True, socket_timeout=ANSWER)


Service: TypeAlias = Alone | Watched


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[Alone]:
    with running_server(*SAVED) as server:
        yield Alone(server)


@contextlib.contextmanager
def with_tls_and_sentinel(directory: Path) -> Iterator[Watched]:
    own = directory / "sentinels"
    own.mkdir()
    tls = Tls(Authority(own))
    with watched(own, REPLICAS, SENTINELS, *SAVED, tls=tls, down_after=DOWN_AFTER) as sentinels:
        yield Watched(sentinels, tls)


# By name, what chaos can happen to.
SERVICES = {"plain": alone, "tls-sentinel": with_tls_and_sentinel}
