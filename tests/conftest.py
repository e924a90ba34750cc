"""A real Redis for the whole run, emptied before each test, and a look at everything in it."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import process_state
import pytest
import redis as redis_py
from faults import FaultProxy
from hypothesis import HealthCheck, settings
from oracle import EVENTS
from payload_keys import client_with, write_keys
from reaching_in import execute, execute_by
from running import BLUEQUE, Programs

from blueque import Client
from blueque.connection.redis import Redis
from blueque.producer.queue import Queue
from blueque.system import hosts
from blueque.system.embedded_redis import Server, running_server

process_state.reset_signals()  # `nohup setsid bin/test` is like bin/test
# An example that takes long on a busy machine is no failure.
settings.register_profile(
    "blueque", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("blueque")
State = Callable[[], dict[str, Any]]
# What takes long comes first, longest first: at the end all but one process would wait for it.
# The others come by their number of tests, so a file with more than 60 is early without us.
LONG = (
    "spark 1",
    "spark 2",
    "test_explorer.py",
    "test_keeper.py",
    "test_mutants.py",
    "test_readme.py",
    "test_bench.py",
    "test_chaos.py",
    "test_reload_run.py",
    "test_browser.py",
    "test_archives.py",
    "test_reuse_run.py",
    "test_adoption.py",
    "test_logs.py",
    "test_audit.py",
    "test_workflow_writer.py",
    "test_replaced_package.py",
    "test_bad_days.py",
    "test_coming_from.py",
    "test_leaving.py",
    "test_demo.py",
    "test_several_queues.py",
    "test_tree.py",
    "test_interop.py",
    "test_process_end.py",
    "test_spoiled_files.py",
    "test_signals.py",
    "test_cancel_run.py",
    "test_daemon_signals.py",
    "test_cli.py",
    "test_log_writer.py",
    "test_dev.py",
    "test_notify.py",
    "test_resources_run.py",
    "test_limits_run.py",
    "test_faults.py",
    "test_spawning_run.py",
    "test_object_stores.py",
    "test_traces_run.py",
    "test_stack.py",
    "test_feeder.py",
)
# Each process has a Java process of its own for them, so they are divided in two and no further.
SPARK_2 = (
    "test_enqueue.py",
    "test_stream.py",
    "test_write.py",
    "test_killed.py",
    "test_session.py",
    "test_submit.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looks for garbage, a fifth of the time; what is collected stays to the end, so
    later looks leave it out.
    """
    gc.disable()
    result = yield
    gc.enable()
    gc.freeze()
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have one process run a file, as with --dist loadfile, but half of tests/spark: its files
    share a Java process.

    What takes long comes first.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # here: it is not always installed

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if "tests/spark/" not in file:
                return file
            return "spark 2" if file.endswith(SPARK_2) else "spark 1"

        def _assign_work_unit(self, node: Any) -> None:
            by_name = {file.rpartition("/")[2]: file for file in reversed(self.workqueue)}
            first = next((by_name[name] for name in LONG if name in by_name), None)
            if first is not None:
                self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def no_traces() -> Iterator[None]:
    """Fail a test that leaves its process other than it was, for the tests after it would suffer."""
    before = process_state.take()
    yield
    traces = process_state.differences(before)
    assert not traces, "\n".join(["This test has left in its process:", *traces])


@pytest.fixture(autouse=True)
def no_logged_errors(no_traces: None, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Drop what was logged before the look for traces: pytest would keep an error with the frames
    that it went through, and these a client with its connection.
    """
    yield
    for phase in ("setup", "call"):
        caplog.get_records(phase).clear()


@pytest.fixture(scope="session", autouse=True)
def legacy_name() -> Iterator[str]:
    """The name that 1.0.0 has for this machine, for us too: it may be localhost, and then we would
    take another.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(hosts.VARIABLE, socket.getfqdn())
        yield socket.getfqdn()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """The server, empty. A test that stops or slows its server takes `own_server` instead."""
    shared_server.clear()
    return shared_server


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server for one test, which writes its append-only file at every command."""
    with running_server("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    client = Client(url, patience=2.0)
    yield client
    client.close()


@pytest.fixture
def redis(client: Client) -> Redis:
    """What the functions of blueque.protocol take."""
    return client.connections


@pytest.fixture
def other(url: str) -> Iterator[Redis]:
    """The same for somebody else, who does something in between."""
    client = Client(url, patience=2.0)
    yield client.connections
    client.close()


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let somebody act between the look and the EXEC of the transaction that comes next."""

    def overtaken(act: Callable[[], object]) -> None:
        def act_and_execute(*arguments: Any) -> Any:
            execute_by(monkeypatch, execute)
            act()
            return execute(*arguments)

        execute_by(monkeypatch, act_and_execute)

    return overtaken


@pytest.fixture
def proxy(url: str) -> Iterator[FaultProxy]:
    """The way to the server through something that can cut and hold."""
    proxy = FaultProxy(url)
    yield proxy
    proxy.close()


@pytest.fixture
def cli(url: str) -> Iterator[redis_py.Redis]:
    """Redis as anybody else sees it, through redis-py."""
    # The ids in the ledger of a run are no text.
    with redis_py.Redis.from_url(
        url, decode_responses=True, encoding_errors="surrogateescape"
    ) as client:
        yield client


@pytest.fixture
def rules_of(cli: redis_py.Redis) -> str:
    """For which Redis the rules of a user have to be, see permissions.SERVERS."""
    return "6.2" if cli.info("server")["redis_version"].startswith("6.") else "7.0"


@pytest.fixture
def queue(client: Client) -> Queue:
    return client.get_queue("video")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file with one key for payloads."""
    return write_keys(tmp_path / "payload.keys", "k1")


@pytest.fixture
def sealed(url: str, keys: Path) -> Iterator[Client]:
    """A client that compresses payloads and encrypts them with this key."""
    with client_with(url, keys=keys, compress_from=100) as client:
        yield client


@pytest.fixture
def programs(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[Programs]:
    """Programs that a test starts. Its module may have WORK, the text of work.py, and ENVIRON, what
    is different in the environment of all of them.
    """
    module = request.module
    with Programs(url, tmp_path, getattr(module, "ENVIRON", None)) as programs:
        if hasattr(module, "WORK"):
            programs.write(module.WORK)
        yield programs


@pytest.fixture(scope="session")
def _installed() -> None:
    from legacy import install  # here: hardly any test needs it

    install()


@pytest.fixture
def legacy(_installed: None, url: str, programs: Programs) -> Any:
    """Programs of 1.0.0."""
    from legacy import Legacy  # here: see above

    return Legacy(url, programs)


@pytest.fixture
def environ(url: str) -> dict[str, str]:
    """The environment of `blueque`, on a terminal of 80 columns without colours."""
    users = ("BLUEQUE_", "REDIS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(users)}
    return kept | {
        "BLUEQUE_REDIS_URL": url,
        "TZ": "UTC",
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }


@pytest.fixture
def run(environ: dict[str, str]) -> Callable[..., SimpleNamespace]:
    """Run `blueque` without a terminal, in this process."""
    from in_process import run as start  # here: it imports all verbs

    def run(*arguments: str, stdin: str = "", **more: str) -> SimpleNamespace:
        return start(arguments, environ | more, stdin)

    return run


@pytest.fixture
def begin(environ: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `blueque` without a terminal, and end it with the test."""
    begun = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(
                [*BLUEQUE, *arguments],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return begun[-1]

    yield begin
    for program in begun:
        program.kill()
        program.communicate()


@pytest.fixture
def everything(cli: redis_py.Redis) -> State:
    """Return everything in Redis, every key with its whole value."""

    def read() -> dict[str, Any]:
        found = cli.keys("*")
        with cli.pipeline() as pipeline:
            for key in found:
                pipeline.type(key)
            # A key that has gone meanwhile has no type.
            types = {
                key: kind
                for key, kind in zip(found, pipeline.execute(), strict=True)
                if kind != "none"
            }
        with cli.pipeline() as pipeline:
            readers: dict[str, Callable[[str], Any]] = {
                "hash": pipeline.hgetall,
                "list": lambda key: pipeline.lrange(key, 0, -1),
                "set": pipeline.smembers,
                "zset": lambda key: pipeline.zrange(key, 0, -1, withscores=True),
                "string": pipeline.get,
                "stream": pipeline.xrange,
            }
            for key, kind in types.items():
                readers[kind](key)
            values = pipeline.execute()
        found_now = zip(types.items(), values, strict=True)
        return {key: dict(value) if kind == "zset" else value for (key, kind), value in found_now}

    return read


@pytest.fixture
def state(everything: State) -> State:
    """Return everything in Redis, every key with its whole value, but for what events leave: see
    test_events.py.
    """

    def read() -> dict[str, Any]:
        found = {key: value for key, value in everything().items() if not key.startswith(EVENTS)}
        for value in found.values():
            if isinstance(value, dict):
                value.pop("events", None)
        return found

    return read
