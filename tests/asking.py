"""Requests to the page without a server."""

from __future__ import annotations

import asyncio

import httpx
from starlette.applications import Starlette

NODE = "host_1"  # the listener that runs the tasks of the tests


def ask_app(app: Starlette, path: str, method: str = "GET", **options: object) -> httpx.Response:
    """Send one request to an application."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return asyncio.run(ask())
