"""The stage of a run: a Redis, the programs on it, and the ledger. What is started here is stopped
here.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from bench import cpu
from bench.systems import Commands, Place, System
from bench.venvs import ROOT, clean_environment
from blueque import Client
from blueque.connection.redis import Redis
from blueque.system.embedded_redis import Server

LINE = 18  # bytes of a line in the ledger
PEERS = ROOT / "bench" / "peers"
DRIVER_TIMEOUT = 120.0  # seconds
STALL = 20.0  # seconds without any task done, after which we give up
LEAVE = 8.0  # seconds that a worker has to leave after SIGTERM

Program = subprocess.Popen[bytes]


class RunFailed(Exception):
    """A run came to nothing; the message says why, in a line."""


class Stage:
    """One Redis with nothing in it, and a directory."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server, self.directory, self.url = server, directory, server.url
        self.ledger = directory / "ledger"
        self.client = Client(server.url)
        self.redis: Redis = self.client._redis
        self.place = Place(server.url, directory)
        self._former_spools = 0
        # those that we have started and not ended yet, by pid
        self._programs: dict[int, Program] = {}

    def clear(self) -> None:
        self.redis.read(("FLUSHALL",))
        self.ledger.unlink(missing_ok=True)
        self.ledger.touch()
        spool = self.directory / "spool"
        if spool.exists():  # not removed, see `setting.work_directory`
            self._former_spools += 1
            spool.rename(self.directory / f"spool.{self._former_spools}")

    def environment(self, system: System) -> dict[str, str]:
        path = f"{PEERS}:{system.checkout}" if system.checkout else str(PEERS)
        return {
            **clean_environment(),
            "PYTHONPATH": path,
            "BENCH_URL": self.url,
            "BENCH_LEDGER": str(self.ledger),
        }

    # Producing

    def drive(self, system: System, *words: object) -> dict[str, Any]:
        """Run the system's driver to its end and return its answer."""
        with self.driver(system, *words) as driver:
            return self.answer(driver)

    @contextlib.contextmanager
    def driver(self, system: System, *words: object) -> Iterator[Program]:
        """Start the system's driver; it is gone at the end."""
        command = [system.python, system.driver, *(str(word) for word in words)]
        program = subprocess.Popen(
            command,
            cwd=self.directory,
            env=self.environment(system),
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._programs[program.pid] = program
        try:
            yield program
        finally:
            self.end([program], patience=0.0)

    def watch(self, program: Program) -> None:
        """Know a program that somebody else has started, and will end."""
        self._programs[program.pid] = program

    def answer(self, driver: Program) -> dict[str, Any]:
        try:
            said, complaint = driver.communicate(timeout=DRIVER_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"no answer within {DRIVER_TIMEOUT:.0f} s") from error
        if driver.returncode != 0:
            raise RunFailed(last_line(complaint) or f"exit {driver.returncode}")
        answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        return answer

    # Working

    @contextlib.contextmanager
    def workers(self, system: System, commands: Commands) -> Iterator[list[Program]]:
        """Start programs; they and all that came of them are gone at the end."""
        programs: list[Program] = []
        with (self.directory / "worker.log").open("wb") as log:
            try:
                for command in commands:
                    programs.append(
                        subprocess.Popen(
                            command,
                            cwd=self.directory,
                            env=self.environment(system),
                            start_new_session=True,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                        )
                    )
                    self._programs[programs[-1].pid] = programs[-1]
                yield programs
            finally:
                self.end(programs)

    def done(self) -> int:
        """Return how many tasks have run."""
        return self.ledger.stat().st_size // LINE

    def times(self, first: int) -> list[float]:
        """Return when tasks have run, Unix seconds, those from number `first` on."""
        return [float(line) for line in self.ledger.read_bytes()[first * LINE :].splitlines()]

    def wait_done(self, count: int, programs: list[Program]) -> None:
        """Wait until so many tasks have run. Raises RunFailed when it does not go on."""
        last, moved = -1, time.monotonic()
        while (done := self.done()) < count:
            if done != last:
                last, moved = done, time.monotonic()
            if time.monotonic() - moved > STALL or any(
                program.poll() is not None for program in programs
            ):
                raise RunFailed(f"only {done} of {count} tasks have run: {self.complaint()}")
            time.sleep(0.004)

    def complaint(self) -> str:
        return last_line((self.directory / "worker.log").read_bytes()) or "its worker said nothing"

    def end(self, programs: list[Program], patience: float = LEAVE) -> None:
        """End what we have started: SIGTERM to the programs, and SIGKILL to all that is left of
        them after a while.
        """
        members = family(programs)
        try:
            for program in programs:
                program.terminate()
            deadline = time.monotonic() + patience
            for program in programs:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(max(deadline - time.monotonic(), 0))
        finally:  # after a Ctrl-C, too
            for member in {*members, *family(programs)}:
                kill(member)
            for program in programs:
                program.wait()
                self._programs.pop(program.pid, None)
                close_pipes(program)
            self._end_orphans()

    def _end_orphans(self) -> None:
        """End what programs of ours have left behind, which is a child of ours now: we are the
        subreaper.
        """
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if child.pid not in self._programs and child.environ().get("BENCH_LEDGER") == str(
                    self.ledger
                ):
                    kill(child)
                    child.wait(5)

    # Redis

    def memory(self) -> int:
        """Return the bytes that Redis uses."""
        return int(self._info("memory", "used_memory"))

    def commands(self) -> int:
        """Return how many commands Redis has had."""
        return int(self._info("stats", "total_commands_processed"))

    def cpu_seconds(self) -> float:
        """Return the processor time that Redis has had."""
        return cpu.of_process(self.server.pid)

    def version(self) -> str:
        return self._info("server", "redis_version")

    def _info(self, section: str, wanted: str) -> str:
        for line in self.redis.read(("INFO", section))[0].splitlines():
            name, _, value = line.partition(":")
            if name == wanted:
                return str(value)
        raise LookupError(wanted)


def family(programs: list[Program]) -> list[psutil.Process]:
    """Return the programs and all their descendants."""
    found: list[psutil.Process] = []
    for program in programs:
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(program.pid)
            found += [own, *own.children(recursive=True)]
    return found


def kill(member: psutil.Process) -> None:
    # psutil knows a process by its start too, not by its pid alone
    with contextlib.suppress(psutil.NoSuchProcess):
        member.kill()


def close_pipes(program: Program) -> None:
    for pipe in (program.stdin, program.stdout, program.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was to be written to one who is gone
                pipe.close()


def last_line(text: bytes) -> str:
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].replace(str(ROOT), ".")[:160] if lines else ""
