"""The settings of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from blueque.text import hints
from blueque.text.redaction import Hide, hider
from blueque.web.access import Viewer
from blueque.web.proxies import Proxies

Authorize = Callable[[Mapping[str, Any]], Viewer | None]


@dataclass(frozen=True)
class Site:
    """How the page looks and what it serves.

    address: of Redis, without a password. origin: its source. env: the name of the environment,
        such as prod.
    prefix: the path below which a proxy serves the page, if the proxy does not strip it.
    queues: patterns; everything of other queues does not exist on this page.
    frame_ancestors: origins, such as https://portal.example.com, that may show it in a frame.
    hosts: names by which browsers may call it; empty: any, for a server that checks them itself.
    proxies: whose headers are trusted; None: no headers of proxies are read.
    hide: removes secrets from parameters and results.
    serve: returns the command that starts a listener of a queue. has_handler: returns whether a
        file names what runs its tasks.
    """

    address: str
    origin: str = "the application"
    env: str = ""
    prefix: str = ""
    queues: tuple[str, ...] = ()
    frame_ancestors: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset()
    is_read_only: bool = False
    proxies: Proxies | None = None
    hide: Hide = field(default_factory=hider)
    serve: Callable[[str], str] = hints.serve
    has_handler: Callable[[str], bool] = lambda queue: False

    def has(self, queue: str | None) -> bool:
        """Return whether a queue belongs to this page."""
        return not self.queues or any(fnmatchcase(queue or "", one) for one in self.queues)
