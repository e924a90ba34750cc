"""Read everything that a task has printed from the files of its attempts on this host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from blueque.cli.failure import MISSING, USAGE, Failure
from blueque.model.log_line import OURS
from blueque.queries.task_log import LogLine
from blueque.spool import log_tail
from blueque.spool.attempt import Attempt
from blueque.spool.outcome_record import last_words
from blueque.spool.spool import number_of, paths_beside
from blueque.system import hosts, process

if TYPE_CHECKING:
    from blueque.model.task import Task


def from_files(task: Task, attempt: int | None) -> Iterator[LogLine]:
    """Yield everything that an attempt has printed. Ends the program if its files are elsewhere."""
    number, host, path = _directory_of(task, attempt)
    if not _is_here(task, host):
        which = f" --attempt {attempt}" if attempt else ""
        raise Failure(
            USAGE,
            f"the files of the task are on {host}",
            f"Run there: blueque logs --all{which} {task.id}, or read {path}",
        )
    if not os.path.isdir(path):
        raise Failure(MISSING, f"{path} does not exist on this host")
    last = 0
    for line in log_tail.read(path):
        last = line.number
        yield LogLine(task.id, number, last, line.at, line.stream, line.text)
    try:
        record = Attempt(path, "").read_exit()
    except OSError:
        return
    if record is not None and (said := last_words(record)):
        yield LogLine(task.id, number, last + 1, record.get("finished") or 0.0, OURS, said)


def _directory_of(task: Task, attempt: int | None) -> tuple[int, str, str]:
    """Return the number of the attempt (default: the last one), and the host and directory of its files."""
    known: dict[int, tuple[str, str]] = {}
    for text in (task.files, task.last_files):
        host, _, path = (text or "").partition(":")
        if (found := number_of(path)) is not None:
            known.setdefault(found, (host, path))
    if not known:
        raise Failure(
            MISSING, f"no files of task {task.id} are known: it has not run, or it ran on 1.0.0"
        )
    number = attempt or next(iter(known))
    if number in known:
        return number, *known[number]
    for host, path in known.values():  # it may have run on the same host
        for beside in paths_beside(path, number) if _is_here(task, host) else ():
            if os.path.isdir(beside):
                return number, host, beside
    places = ", ".join(f"{one} in {host}:{path}" for one, (host, path) in known.items())
    raise Failure(
        MISSING, f"the files of attempt {number} were not found", f"Known files: attempt {places}"
    )


def _is_here(task: Task, host: str) -> bool:
    """Return whether the files of a listener of that host are on this machine."""
    node_host = (task.node or "").rpartition("_")[0]
    return (host == node_host and process.shares_pids(task.fields)) or hosts.has_been_this_machine(
        host
    )
