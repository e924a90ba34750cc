"""Write commands for people to copy, quoted for the shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from blueque.model.lines import keys_among, parse_needs, without_keys

_BYTES = 1 << 20  # amounts from here on are bytes
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

Resources = Sequence[tuple[str, int]]


def serve(queue: str, resources: Resources = (), has_handler: bool = False) -> str:
    """Return the command that starts a listener of the queue with these resources.

    has_handler: blueque.toml or the environment names what runs its tasks; else the command has a
        placeholder.
    """
    named = without_keys(dict(resources))
    options = "".join(f" --resource {name}={amount(number)}" for name, number in named.items())
    options += "" if has_handler else " --module MODULE"
    # A name that ends with =NUMBER would be read as a name and its weight.
    name = f"{queue}=1" if "=" in queue else queue
    return (
        f"blueque-listener{options} -- {shlex.quote(name)}"
        if queue.startswith("-")
        else (f"blueque-listener {shlex.quote(name)}{options}")
    )


def with_spool(serve: str, spool: str | None, host: str | None = None) -> str:
    """Return the command of `serve` for a listener that adopts what another one left in its spool.

    spool: None: unknown. host: its name from --host; None: that of its machine.
    """
    options = "" if host is None else f" --host {shlex.quote(host)}"
    if spool is not None:
        options += f" --spool {shlex.quote(spool)}"
    return serve.replace("blueque-listener", f"blueque-listener{options}", 1)


def of_queue(verb: str, queue: str, *words: str) -> str:
    """Return a command for a queue."""
    return " ".join(
        ["blueque", verb, *(["--"] if queue.startswith("-") else []), shlex.quote(queue), *words]
    )


def of_group(verb: str, name: str) -> str:
    """Return a command for a group."""
    return of_queue(f"group {verb}", name)


def of_feed(verb: str, name: str, queue: str) -> str:
    """Return a command for a feed of a queue."""
    return of_queue(f"group {verb}", name, "-q", shlex.quote(queue))


def of_schedule(verb: str, name: str) -> str:
    """Return a command for a schedule."""
    return of_queue(f"schedule {verb}", name)


def prune_schedules(file: str | None = None) -> str:
    """Return the command that removes the schedules that a file no longer has.

    file: the file to read; None: the one that the command finds by itself.
    """
    named = f" --config {shlex.quote(file)}" if file is not None else ""
    return f"blueque schedule apply --prune{named}"


def resume_node(host: str) -> str:
    """Return the command that makes the listeners of a host take tasks again."""
    return f"blueque host resume {shlex.quote(host)}"


def amount(number: int) -> str:
    """Return an exact amount of a resource: 2, 8GiB."""
    for unit, size in _UNITS:
        if number >= _BYTES and number % size == 0:
            return f"{number // size}{unit}"
    return str(number)


def amounts(resources: Resources) -> str:
    """Return `gpu=2, memory=8GiB, payload key k1.0a1b2c3d`."""
    named = [f"{name}={amount(number)}" for name, number in without_keys(dict(resources)).items()]
    return ", ".join([*named, *(f"payload key {key}" for key in keys_among(resources))])


def words_of(text: str) -> str:
    """Return needs (text of `lines.write_needs`) as `gpu=2, memory=8GiB, lock licence for 3`."""
    needs = parse_needs(text)
    if needs is None:
        return text
    lock = (
        []
        if needs.lock is None
        else [f"lock {needs.lock}{f' for {needs.limit}' if needs.limit > 1 else ''}"]
    )
    return ", ".join([*([amounts(needs.resources)] if needs.resources else []), *lock])
