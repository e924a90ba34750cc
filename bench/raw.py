"""The upper limit: what one socket and Redis can do, with the transaction of enqueue packed by hand
before the clock starts.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

import hiredis

from blueque.model import keys
from blueque.system import process

BATCH = 1000  # tasks in one transaction of a bulk
AHEAD = 200  # transactions that are packed before the clock goes on

Block = tuple[bytes, int]  # commands, and how many replies they bring


def command(*parts: str | int | float) -> bytes:
    packed = [part.encode() if isinstance(part, str) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(packed) + b"".join(
        b"$%d\r\n%b\r\n" % (len(part), part) for part in packed
    )


def ours(
    queue: str, count: int, size: int, text: str, encoding: str | None = None
) -> Iterator[Block]:
    """Yield transactions of so many tasks each, as this version enqueues: hash, index of all tasks,
    line and wake-up.
    """
    now = time.time()
    tail: list[str | float] = ["queue", queue, "parameters", text, "created", now, "updated", now]
    tail += ["parameters_encoding", encoding] if encoding else []
    tail += ["producer", process.producer()]
    for first in range(0, count, size):
        ids = [str(uuid.uuid4()) for _ in range(min(size, count - first))]
        commands = [command("HSET", keys.task(task), "status", "pending", *tail) for task in ids]
        scored = [word for task in ids for word in (now, task)]
        commands += [
            command("ZINCRBY", keys.QUEUES, 0, queue),
            command("LPUSH", keys.pending(queue), *ids),
            command("ZADD", keys.tasks(queue), *scored),
            command("ZADD", keys.wake(queue), 0, 0),
        ]
        yield transaction(commands)


def of_1_0_0(
    queue: str,
    count: int,
    size: int,
    text: str,
    more: Callable[[int], Sequence[str | float]] = lambda number: (),
) -> Iterator[Block]:
    """The same as 1.0.0 enqueues: hash and line.

    more: further fields of a task, by its number.
    """
    now = time.time()
    fields = ["queue", queue, "parameters", text, "created", now, "updated", now]
    for first in range(0, count, size):
        ids = [str(uuid.uuid4()) for _ in range(min(size, count - first))]
        commands = [
            command("HSET", keys.task(task), "status", "pending", *fields, *more(number))
            for number, task in enumerate(ids, first)
        ]
        commands += [
            command("ZINCRBY", keys.QUEUES, 0, queue),
            command("LPUSH", keys.pending(queue), *ids),
        ]
        yield transaction(commands)


def send(url: str, blocks: Iterator[Block], in_flight: int) -> float:
    """Send them over one socket, so many ahead of their answers, and return the seconds that it
    took.

    The clock stands still while the next ones are made, 200 at a time, so that any number fits.
    """
    address = urlsplit(url)
    reader = hiredis.Reader()
    seconds = 0.0
    with socket.create_connection((address.hostname, address.port or 6379), 10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while packed := _some(blocks):
            began = time.perf_counter()
            for number, (block, _) in enumerate(packed):
                connection.sendall(block)
                if number + 1 >= in_flight:
                    _receive(connection, reader, packed[number + 1 - in_flight][1])
            for _, replies in packed[len(packed) - min(in_flight - 1, len(packed)) :]:
                _receive(connection, reader, replies)
            seconds += time.perf_counter() - began
    return seconds


def transaction(commands: list[bytes]) -> Block:
    return b"".join([command("MULTI"), *commands, command("EXEC")]), len(commands) + 2


def _some(blocks: Iterator[Block]) -> list[Block]:
    return [block for block, _ in zip(blocks, range(AHEAD), strict=False)]


def _receive(connection: socket.socket, reader: hiredis.Reader, count: int) -> None:
    while count:
        reply = reader.gets()
        if reply is False:
            # Not much more: malloc would map and unmap memory for each call.
            reader.feed(connection.recv(65536))
            continue
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        count -= 1
