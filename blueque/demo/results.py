"""What the demo prints in the end: a table of the results, and what Redis holds."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from blueque.connection.address import Address
from blueque.connection.plain import SocketConnection
from blueque.demo.programs import WIDTH
from blueque.model import keys
from blueque.model.task import Task

TOP = 15


def _rank(ended: Mapping[str, Task]) -> list[Task]:
    """Return the complete tasks, the one with most lines first."""
    complete = [task for task in ended.values() if task.status == "complete"]
    return sorted(complete, key=lambda task: -task.result["lines"])


def print_results(ended: Mapping[str, Task], seconds: float) -> None:
    ranking = _rank(ended)
    print(
        f"{'package':<22}{'files':>8}{'lines':>10}{'functions':>11}{'classes':>9}{'deepest':>9}{'seconds':>9}"
    )
    for task in ranking[:TOP]:
        _print_row(task.result, (task.finished or 0.0) - (task.started or 0.0))
    total = {
        name: sum(task.result[name] for task in ranking)
        for name in ("files", "lines", "functions", "classes")
    }
    deepest = max(task.result["deepest"] for task in ranking)
    _print_row({"package": f"all {len(ranking)}", **total, "deepest": deepest}, seconds)
    unreadable = sum(task.result["unreadable"] for task in ranking)
    if unreadable:
        print(
            f"({unreadable} files are bad Python on purpose, for tests: only their lines are counted.)"
        )
    (failed,) = (task for task in ended.values() if task.status == "failed")
    print(
        f"\n{len(ended)} tasks: {len(ranking)} complete, 1 failed, as it should, in {seconds:.1f} s:"
    )
    print(folded(f"{failed.parameters['package']}: {failed.error}"))


def _print_row(row: Mapping[str, Any], seconds: float) -> None:
    print(
        f"{row['package'][:22]:<22}{row['files']:>8,}{row['lines']:>10,}{row['functions']:>11,}{row['classes']:>9,}"
        f"{row['deepest']:>9}{seconds:>9.2f}"
    )


def print_redis(url: str, queue: str, ended: Mapping[str, Task]) -> None:
    """Print commands for redis-cli, and their output."""
    port = urlsplit(url).port or 0
    largest = keys.task(_rank(ended)[0].id)
    failed = next(keys.task(task.id) for task in ended.values() if task.status == "failed")
    print("\nThe same in Redis, as any program can read it:")
    for words in (
        ("LLEN", keys.complete(queue)),
        ("LLEN", keys.failed(queue)),
        ("ZCARD", keys.tasks(queue)),
        ("SMEMBERS", keys.listeners(queue)),
        ("HMGET", largest, "status", "attempt", "pid", "result"),
        ("HMGET", failed, "status", "error_type", "error"),
    ):
        command = f"$ {redis_cli() or 'redis-cli'} -p {port} {shlex.join(words)}"
        if len(command) > WIDTH:  # its arguments go on the next line
            command = f"$ {redis_cli() or 'redis-cli'} -p {port} {shlex.join(words[:2])} \\\n    {shlex.join(words[2:])}"
        print(command)
        for line in ask(port, *words):
            print(folded(line))


def redis_cli() -> str | None:
    """Return the name of an installed redis-cli."""
    return next((name for name in ("redis-cli", "valkey-cli") if shutil.which(name)), None)


def ask(port: int | str, *words: str) -> list[str]:
    """Return the lines that `redis-cli -p port words...` prints, or would print if not installed."""
    program = redis_cli()
    if program is not None:
        command = [program, "-p", str(port), *words]
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, process_group=0
        )
        return answer.stdout.splitlines()
    connection = SocketConnection(Address(f"redis://127.0.0.1:{port}/0"))
    (reply,) = connection.exchange([words])
    connection.close()
    return [str(part) for part in (reply if isinstance(reply, list) else [reply])]


def folded(text: str) -> str:
    """Return the text folded to the terminal; a long path goes to the next line."""
    return textwrap.fill(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )
