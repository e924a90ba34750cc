"""The page as a program for the bench: as `blueque web` serves it, but without a login.

    python -m bench.page URL [PORT]

Prints its port. `/bench` has it forget what it has read, and answers with the round trips to Redis since the last time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from blueque import Client
from blueque.connection.redis import Command, Connection
from blueque.web import create_app, server
from blueque.web.access import Viewer

Scope = MutableMapping[str, Any]


class Counted:
    """Opens connections whose writes are counted: each waits for its answer, so it is a round trip."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self.trips = 0

    def __call__(self) -> Connection:
        made = self._connect()
        send = made.send

        def counted(commands: Iterable[Command]) -> None:
            self.trips += 1
            send(commands)

        made.send = counted  # type: ignore[method-assign]
        return made


class Measured:
    """The application, and its answer to `/bench`."""

    def __init__(self, url: str) -> None:
        client = Client(url, patience=1.0)
        self._counted = client.connections.connect = Counted(client.connections.connect)
        self._app = create_app(client, authorize=lambda scope: Viewer("bench", "operator"))
        self.state = self._app.state

    async def __call__(
        self,
        scope: Scope,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        if scope.get("path") != "/bench":
            await self._app(scope, receive, send)
            return
        text, self._counted.trips = b"%d" % self._counted.trips, 0
        self.state.shared.reader.forget()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text})


def main(url: str, port: str = "0") -> None:
    gc.set_threshold(100_000)  # as `blueque.cli.main` does
    listening = server.bind(server.Address(port=int(port)))
    print(listening.getsockname()[1], flush=True)
    server.serve(Measured(url), listening)


if __name__ == "__main__":
    main(*sys.argv[1:])
