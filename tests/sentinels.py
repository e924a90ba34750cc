"""A service behind Sentinel: a primary, its replicas and the Sentinels that watch it; and what may
happen to the primary.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis as redis_py
from authority import Authority
from running import until
from wire import Wire

from blueque.model import keys
from blueque.system.embedded_redis import Server, find_server

SERVICE = "gpu"
# Sentinel takes a server that says nothing for so long for dead.
DOWN_AFTER = 500  # milliseconds
PASSWORD = "of the sentinels"
OPTIONS = ("--repl-diskless-sync", "no", "--hz", "100", "--repl-ping-replica-period", "1")
FAILOVER = 60.0  # seconds until another primary is named
GIVEN_UP = 5.0  # seconds after which Sentinel has given up a failover that takes too long
WHOLE = 60.0  # seconds until all are back that something has happened to


class Tls:
    """TLS of servers and Sentinels. ports: those with TLS, by those without. made: see
    Authority.sign.
    """

    def __init__(self, authority: Authority, **made: Any) -> None:
        self.authority, self.ports = authority, dict[int, int]()
        self.certificate, self.key = authority.sign("server", **made)

    def options(self, port: int) -> dict[str, str]:
        """Return the options of a server with this port without TLS, and give it one with TLS."""
        self.ports[port] = Server(self.authority.directory).port
        return {
            "tls-port": str(self.ports[port]),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-ca-cert-file": str(self.authority.file),
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }


class Sentinels:
    """servers: by port; the first primary is the first. wires: those in front of them, by the same
    ports, if there are: then all reach a server by its wire alone. tls: then all speak TLS, but the
    ports without it are there, too.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        directory: Path,
        count: int,
        wires: dict[int, Wire],
        tls: Tls | None = None,
        down_after: int = DOWN_AFTER,
    ) -> None:
        self.servers = {server.port: server for server in servers}
        self.wires, self.tls, self._down_after = wires, tls, down_after
        self._named = {self.place(server): server for server in servers}
        self._ports = [Server(directory).port for _ in range(count)]
        first = self.place(servers[0])
        self._popens = [self._start(port, first, directory) for port in self._ports]
        until(self._know_each_other, what="Sentinels that know all")

    @property
    def url(self) -> str:
        return self.url_by(self.ports)

    @property
    def ports(self) -> list[int]:
        """Where the Sentinels are found."""
        return self._ports if self.tls is None else [self.tls.ports[port] for port in self._ports]

    def url_by(self, ports: Sequence[int]) -> str:
        """Return the address of the service for a client that finds the Sentinels at these ports."""
        places = ",".join(f"127.0.0.1:{port}" for port in ports)
        url = f"redis+sentinel://{places}/{SERVICE}?sentinel_password={PASSWORD}"
        if self.tls is None:
            return url
        return f"{url.replace('redis', 'rediss', 1)}&ssl_ca_certs={self.tls.authority.file}"

    def primary(self) -> Server:
        """Return the server that Sentinel names."""
        with self._ask() as sentinel:
            _, port = sentinel.sentinel_get_master_addr_by_name(SERVICE)
        return self._named[port]

    def fail_over(self) -> Server:
        """Have Sentinel name another primary, and return it."""
        before = self.primary()
        self.replace(before)
        return self.other_than(before)

    def strike(
        self,
        fault: str,
        queue: str,
        held: float = 0.0,
        at_once: bool = True,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Have one of FAULTS, and wait until Sentinel names another primary and each listener of a
        queue has beaten there.

        held: seconds for which it lasts then. at_once: see `heal`. log: gets a line for each step.
        """
        primary = self.primary()
        before = beats(primary, queue)
        FAULTS[fault](self, primary)
        try:
            new = self.other_than(primary)
            log(f"primary port={new.port}")
            time.sleep(held)
        finally:
            self.heal(primary, at_once)
        log(f"healed port={primary.port}")
        until(lambda: have_beaten(new, queue, before), WHOLE, "a beat of each listener there")
        log("all listeners have left")

    def other_than(self, before: Server) -> Server:
        """Wait until Sentinel names another primary than this one, and return it."""
        until(lambda: self.primary() is not before, FAILOVER, "another primary")
        return self.primary()

    def is_whole(self) -> bool:
        """Tell whether the primary has all the others as its replicas, and they have all that it has."""
        with redis_py.Redis(port=self.primary().port) as admin:
            try:
                known = admin.info("replication")
                found = [known.get(f"slave{n}", {}) for n in range(len(self.servers) - 1)]
                if any(one.get("state") != "online" for one in found):
                    return False
                admin.set("whole", 1)  # what comes before it they have, too
                return bool(admin.wait(len(found), 1000) == len(found))
            except redis_py.RedisError:
                return False

    def take_for_dead_after(self, milliseconds: int) -> None:
        """Have the Sentinels be more or less patient than DOWN_AFTER, as a busy machine needs it."""
        for port in self._ports:
            with self._ask(port) as sentinel:
                sentinel.sentinel_set(SERVICE, "down-after-milliseconds", milliseconds)

    def lose_sentinels(self, count: int) -> None:
        """Kill the last ones."""
        for popen in self._popens[-count:]:
            popen.kill()
            popen.wait()

    def close(self) -> None:
        self.lose_sentinels(len(self._popens))

    def place(self, server: Server) -> int:
        """Return the port at which all others find a server."""
        if server.port in self.wires:
            return self.wires[server.port].port
        return server.port if self.tls is None else self.tls.ports[server.port]

    # What may happen to a primary

    def kill(self, primary: Server) -> None:
        primary.kill()

    def freeze(self, primary: Server) -> None:
        freeze(primary)

    def replace(self, primary: Server) -> None:
        """Have a person tell Sentinel to fail over, and tell it again when it gives up: on a busy
        machine that may take it too long.
        """
        again_at = 0.0

        def is_replaced() -> bool:
            nonlocal again_at
            if time.monotonic() >= again_at and self.begin_replacing():
                again_at = time.monotonic() + GIVEN_UP
            return self.primary() is not primary

        until(is_replaced, FAILOVER, "another primary")

    def cut_off(self, primary: Server) -> None:
        """Let nobody reach it any more."""
        self.wires[primary.port].stall()

    def part(self, primary: Server) -> None:
        """Let neither Sentinels nor replicas reach it any more, and clients go on."""
        self.wires[primary.port].stall_servers()

    def heal(self, server: Server, at_once: bool = False) -> None:
        """Take back what has happened to a server; one that was killed is a replica now.

        at_once: so is any other. By themselves Sentinels wait for 8 seconds before they have one
            that thinks that it is the primary be a replica.
        """
        if server.port in self.wires:
            self.wires[server.port].heal()
        place = self.place(self.primary())
        try:
            thaw(server)
        except RuntimeError:  # it was killed, and must not be an empty primary for a moment
            own = server.options
            server.options = (*own, "--replicaof", "127.0.0.1", str(place))
            server.start()
            server.options = own
        if at_once:
            follow(server, place)

    # Inside

    def begin_replacing(self) -> bool:
        """Tell Sentinel to fail over; tell whether it begins."""
        try:
            with self._ask() as sentinel:
                sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)
        except redis_py.ResponseError:  # one is just over, or no replica is good enough yet
            return False
        return True

    def _know_each_other(self) -> bool:
        try:
            with self._ask() as sentinel:
                state = sentinel.sentinel_master(SERVICE)
        except redis_py.RedisError:
            return False
        wanted = (len(self.servers) - 1, len(self._ports) - 1)
        return (state["num-slaves"], state["num-other-sentinels"]) == wanted

    def _ask(self, port: int = 0) -> redis_py.Redis:
        port = port or self._ports[0]
        return redis_py.Redis(port=port, password=PASSWORD, decode_responses=True)

    def _start(self, port: int, primary: int, directory: Path) -> subprocess.Popen[bytes]:
        path = directory / f"{port}.conf"
        own = {} if self.tls is None else self.tls.options(port)
        path.write_text(
            f'bind 127.0.0.1\nport {port}\ndir {directory}\nrequirepass "{PASSWORD}"\n'
            f'sentinel sentinel-pass "{PASSWORD}"\n'
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} {len(self._ports) // 2 + 1}\n"
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after}\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
            + "".join(f"{name} {value}\n" for name, value in own.items())
        )
        executable = find_server()
        assert executable is not None
        log = (directory / f"{port}.log").open("ab")
        with log:
            return subprocess.Popen(
                [executable, str(path), "--sentinel"], stdout=log, stderr=log, process_group=0
            )


def beats(server: Server, queue: str) -> dict[str, int]:
    """Return how often each listener of a queue has beaten, as this server knows; nothing if it does
    not answer.
    """
    try:
        with redis_py.Redis(port=server.port, decode_responses=True) as admin:
            nodes = admin.zrange(keys.nodes(queue), 0, -1)
            return {
                node: int(admin.hget(keys.listener(queue, node), "beat") or 0) for node in nodes
            }
    except redis_py.RedisError:
        return {}


def have_beaten(server: Server, queue: str, before: dict[str, int]) -> bool:
    """Tell whether each of these listeners has beaten since, as this server knows."""
    found = beats(server, queue)
    return all(found.get(node, 0) > count for node, count in before.items())


# By name; each is undone by `heal`.
FAULTS: dict[str, Callable[[Sentinels, Server], None]] = {
    call.__name__: call
    for call in (
        Sentinels.kill,
        Sentinels.freeze,
        Sentinels.replace,
        Sentinels.cut_off,
        Sentinels.part,
    )
}


def words(options: dict[str, str]) -> tuple[str, ...]:
    """Return options as a server takes them on its command line."""
    return tuple(word for name, value in options.items() for word in (f"--{name}", value))


def freeze(server: Server) -> None:
    os.kill(server.pid, signal.SIGSTOP)


def thaw(server: Server) -> None:
    os.kill(server.pid, signal.SIGCONT)


def follow(server: Server, place: int) -> None:
    """Have a server be a replica of the one that is found at a port."""
    with redis_py.Redis(port=server.port) as admin:
        admin.replicaof("127.0.0.1", place)


@contextmanager
def replicated(
    replicas: int, *options: str, wires: dict[int, Wire] | None = None, tls: Tls | None = None
) -> Iterator[list[Server]]:
    """Run a primary, the first of the servers, and its replicas.

    options: of each. wires: gets one for each: see Sentinels, tls as well.
    """
    with ExitStack() as stack:
        servers: list[Server] = []
        first = 0  # where the first primary is found
        for _ in range(1 + replicas):
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="blueque-redis-"))
            server = Server(own, *OPTIONS, *options)
            place = server.port
            if wires is not None:
                wires[server.port] = wire = Wire(server.port)
                stack.callback(wire.close)
                place = wire.port
                announced = ("--replica-announce-ip", "127.0.0.1", "--replica-announce-port")
                server.options += (*announced, str(place))
            if tls is not None:
                server.options += words(tls.options(server.port))
                place = tls.ports[server.port]
            server.start()
            stack.callback(server.kill)
            if servers:
                follow(server, first)
            else:
                first = place
            servers.append(server)
        yield servers


@contextmanager
def watched(
    directory: Path,
    replicas: int,
    sentinels: int,
    *options: str,
    by_wire: bool = False,
    tls: Tls | None = None,
    down_after: int = DOWN_AFTER,
) -> Iterator[Sentinels]:
    """Run a primary with replicas and Sentinels.

    options: of each server. by_wire, tls: see Sentinels. down_after: milliseconds after which a
        server that says nothing is taken for dead.
    """
    wires: dict[int, Wire] = {}
    with replicated(replicas, *options, wires=wires if by_wire else None, tls=tls) as servers:
        service = Sentinels(servers, directory, sentinels, wires, tls, down_after)
        try:
            yield service
        finally:
            service.close()
