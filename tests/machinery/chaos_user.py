"""Enqueues tasks and looks at the page until told to stop, and writes down what it was told.

`PYTHONPATH=tests python tests/machinery/chaos_user.py URL QUEUE FILE PAGE TOKEN`
"""

from __future__ import annotations

import http.client
import signal
import sys
import threading
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from blueque import Client
from blueque.errors import Contended, OutcomeUnknown, RedisAway

ENQUEUE_EVERY, LOOK_EVERY = 0.15, 1.0  # seconds
ANSWER = 10.0  # seconds that the page may take


def main(url: str, queue: str, path: str, page: str, token: str) -> None:
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    looking = threading.Thread(target=_look, args=(page, token, queue, is_over))
    looking.start()
    with Path(path).open("a", buffering=1) as told:
        _enqueue(Client(url, patience=1.0), queue, told, is_over)
    looking.join()


def _enqueue(client: Client, queue: str, told: TextIO, is_over: threading.Event) -> None:
    line = client.get_queue(queue)
    while not is_over.wait(ENQUEUE_EVERY):
        try:
            told.write(f"accepted {line.enqueue('')}\n")
        except OutcomeUnknown as error:
            told.write(f"unknown {error.task_id}\n")
        except (RedisAway, Contended):
            continue
    client.close()


def _look(page: str, token: str, queue: str, is_over: threading.Event) -> None:
    """Look at two pages, as a browser with a login does."""
    cookie = ""
    while not is_over.wait(LOOK_EVERY):
        try:
            cookie = cookie or _log_in(page, token)
            for path in ("/", f"/queues/{queue}"):
                _ask(page, "GET", path, headers={"Cookie": cookie})
        except (OSError, http.client.HTTPException):
            continue


def _log_in(page: str, token: str) -> str:
    headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
    answer = _ask(page, "POST", "/login", f"token={token}", headers)
    return (answer.getheader("set-cookie") or "").partition(";")[0]


def _ask(page: str, *request: Any, **more: Any) -> http.client.HTTPResponse:
    place = urlsplit(page)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=ANSWER)
    try:
        connection.request(*request, **more)
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
