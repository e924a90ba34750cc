"""An answer that goes on, with bounds: for a viewer that does not read, and for how long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Message, Send

log = logging.getLogger("blueque")

PATIENCE = 30.0  # seconds that a viewer may take to read what was sent
LONGEST = 3600.0  # seconds; then the browser comes again, and its login is looked at again


class BoundedStream(StreamingResponse):
    """Ends when its viewer reads too slowly, and after an hour. It closes its iterator at its end."""

    async def stream_response(self, send: Send) -> None:
        whole: Any = self.body_iterator
        bounded: Any = _until(whole, time.monotonic() + LONGEST)
        self.body_iterator = bounded

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(PATIENCE):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            log.info("web stream ends: its viewer reads too slowly")
        finally:
            await bounded.aclose()
            await whole.aclose()


async def _until(messages: AsyncIterator[str], end: float) -> AsyncIterator[str]:
    async for message in messages:
        yield message
        if time.monotonic() > end:
            return
