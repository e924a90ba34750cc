"""The Redis of chaos: one server, or a service behind Sentinel with TLS; and the network to it."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from unittest import mock

import redis as redis_py
from authority import Authority
from sentinels import Sentinels, Tls, watched
from wire import Wire

from blueque.system import embedded_redis
from blueque.system.embedded_redis import Server, running_server

# Nothing may be lost when a server is killed.
SAVED = ("--appendonly", "yes", "--appendfsync", "always")
REPLICAS, SENTINELS = 2, 3
# Longer than chaos lets a server be away: Sentinel would name a replica that has not all.
DOWN_AFTER = 15_000  # milliseconds
ANSWER = 2.0  # seconds
LOADED = 120.0  # seconds that a busy machine may take to load what a server has saved


class Network(Protocol):
    """A way of one node to Redis: see Wire."""

    url: str
    delay: float
    cuts_after: bool

    @property
    def connections(self) -> int: ...
    def stall(self) -> None: ...
    def cut(self) -> None: ...
    def heal(self) -> None: ...
    def close(self) -> None: ...


class Service(Protocol):
    """A Redis. url: without a wire in between."""

    url: str

    def primary(self) -> Server: ...
    def start(self, server: Server) -> None:
        """Start a primary that was killed."""

    def wire(self) -> Network: ...


class Alone:
    """One server without TLS."""

    def __init__(self, server: Server) -> None:
        self._server, self.url = server, server.url

    def primary(self) -> Server:
        return self._server

    def start(self, server: Server) -> None:
        _start(server)

    def wire(self) -> Network:
        return Wire(self._server.port)


class Watched:
    """A primary, replicas and Sentinels, all with TLS."""

    def __init__(self, sentinels: Sentinels, tls: Tls) -> None:
        self.sentinels, self._tls, self.url = sentinels, tls, sentinels.url

    def primary(self) -> Server:
        return self.sentinels.primary()

    def start(self, server: Server) -> None:
        """Start it as what it was, whatever it was at first."""
        if "--replicaof" in server.options:
            at = server.options.index("--replicaof")
            server.options = server.options[:at] + server.options[at + 3 :]
        _start(server)

    def wire(self) -> Network:
        return Wires(self.sentinels, self._tls)

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


class Wires:
    """The way of one node to all servers and Sentinels."""

    def __init__(self, sentinels: Sentinels, tls: Tls) -> None:
        self._servers = [_ServerWire(port, tls.ports[port]) for port in sentinels.servers]
        places = dict(
            zip(map(tls.ports.__getitem__, sentinels.servers), self._servers, strict=True)
        )
        ports = {port: wire.port for port, wire in places.items()}
        self._sentinels = [_SentinelWire(port, tls, ports) for port in sentinels.ports]
        self._all: list[Wire] = [*self._servers, *self._sentinels]
        self.url = sentinels.url_by([wire.port for wire in self._sentinels])

    @property
    def connections(self) -> int:
        return sum(wire.connections for wire in self._servers)

    @property
    def delay(self) -> float:
        return self._all[0].delay

    @delay.setter
    def delay(self, seconds: float) -> None:
        for wire in self._all:
            wire.delay = seconds

    @property
    def cuts_after(self) -> bool:
        return all(wire.cuts_after for wire in self._servers)

    @cuts_after.setter
    def cuts_after(self, is_so: bool) -> None:
        for wire in self._servers:
            wire.cuts_after = is_so

    def stall(self) -> None:
        for wire in self._all:
            wire.stall()

    def cut(self) -> None:
        for wire in self._all:
            wire.cut()

    def heal(self) -> None:
        for wire in self._all:
            wire.heal()

    def close(self) -> None:
        for wire in self._all:
            wire.close()


class _ServerWire(Wire):
    """To a server with TLS: nobody can see what goes through, so the server is asked.

    port: without TLS. with_tls: the other one.
    """

    def __init__(self, port: int, with_tls: int) -> None:
        self._port = port
        super().__init__(with_tls)

    def _may_execute(self, data: bytes) -> bool:
        return True

    def _has_executed(self, server: socket.socket) -> bool:
        own = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            with _client(self._port) as admin:
                commands = [each["cmd"] for each in admin.client_list() if each["addr"] == own]
        except redis_py.RedisError:  # it is away
            return False
        return commands == ["exec"]


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
            self._open.add(own)
            try:
                plain = socket.create_connection(self._server, ANSWER)
                with self._theirs.wrap_socket(plain, server_hostname="127.0.0.1") as server:
                    for end in (own, server):
                        end.settimeout(None)
                    self._forward(own, server)
            finally:
                self._open.discard(own)

    def _named(self, data: bytes) -> bytes:
        for old, new in self._ports.items():
            data = data.replace(old, new)
        return data


def _start(server: Server) -> None:
    with mock.patch.object(embedded_redis, "START_TIMEOUT", LOADED):
        server.start()


def _client(port: int) -> redis_py.Redis:
    return redis_py.Redis(port=port, decode_responses=True, socket_timeout=ANSWER)


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
