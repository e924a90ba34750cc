"""A service behind Sentinel: a primary, its replicas and the Sentinels that watch it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis as redis_py
from running import until

from blueque.system.embedded_redis import Server, find_server, running_server

SERVICE = "gpu"
# Sentinel takes a server that says nothing for so long for dead.
DOWN_AFTER = 500  # milliseconds
PASSWORD = "of the sentinels"


class Sentinels:
    """servers: by port; the first primary is the first."""

    def __init__(self, servers: list[Server], directory: Path, count: int) -> None:
        self.servers = {server.port: server for server in servers}
        self._ports = [Server(directory).port for _ in range(count)]
        self._popens = [self._start(port, servers[0].port, directory) for port in self._ports]
        until(self._know_each_other, what="Sentinels that know all")

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"redis+sentinel://{places}/{SERVICE}?sentinel_password={PASSWORD}"

    def primary(self) -> Server:
        """Return the server that Sentinel names."""
        with self._ask() as sentinel:
            _, port = sentinel.sentinel_get_master_addr_by_name(SERVICE)
        return self.servers[port]

    def fail_over(self) -> Server:
        """Have Sentinel name another primary, and return it."""
        before = self.primary()
        with self._ask() as sentinel:
            until(lambda: self._begins(sentinel), what="the beginning of a failover")
        return self.other_than(before)

    def other_than(self, before: Server) -> Server:
        """Wait until Sentinel names another primary than this one, and return it."""
        until(lambda: self.primary() is not before, 30, "another primary")
        return self.primary()

    def lose_sentinels(self, count: int) -> None:
        """Kill the last ones."""
        for popen in self._popens[-count:]:
            popen.kill()
            popen.wait()

    def close(self) -> None:
        self.lose_sentinels(len(self._popens))

    def _begins(self, sentinel: redis_py.Redis) -> bool:
        try:
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

    def _ask(self) -> redis_py.Redis:
        return redis_py.Redis(port=self._ports[0], password=PASSWORD, decode_responses=True)

    def _start(self, port: int, primary: int, directory: Path) -> subprocess.Popen[bytes]:
        path = directory / f"{port}.conf"
        path.write_text(
            f'bind 127.0.0.1\nport {port}\ndir {directory}\nrequirepass "{PASSWORD}"\n'
            f'sentinel sentinel-pass "{PASSWORD}"\n'
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} {len(self._ports) // 2 + 1}\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
        )
        executable = find_server()
        assert executable is not None
        log = (directory / f"{port}.log").open("ab")
        with log:
            return subprocess.Popen(
                [executable, str(path), "--sentinel"], stdout=log, stderr=log, process_group=0
            )


@contextmanager
def replicated(replicas: int) -> Iterator[list[Server]]:
    """Run a primary, the first of the servers, and its replicas."""
    options = ("--repl-diskless-sync", "no", "--hz", "100", "--repl-ping-replica-period", "1")
    with ExitStack() as stack:
        primary = stack.enter_context(running_server(*options))
        of_primary = (*options, "--replicaof", f"127.0.0.1 {primary.port}")
        others = [stack.enter_context(running_server(*of_primary)) for _ in range(replicas)]
        yield [primary, *others]


@contextmanager
def watched(directory: Path, replicas: int, sentinels: int) -> Iterator[Sentinels]:
    """Run a primary with replicas and Sentinels."""
    with replicated(replicas) as servers:
        service = Sentinels(servers, directory, sentinels)
        try:
            yield service
        finally:
            service.close()
