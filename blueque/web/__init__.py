"""The page: what `blueque status`, `show`, `logs` and the other commands print, in a browser.

`create_app` returns an ASGI application for any server; `blueque web` runs it with uvicorn. It
requires the extra `web`. `access.py` and `guard.py` decide which requests are allowed, `reader.py`
shares reads of Redis between viewers, and `parts.py` answers open pages with what has changed.

May import all rooms but the command line. Begin with `app.py`; `views/` has a module for each page.
"""

from __future__ import annotations

from blueque.web.app import create_app

__all__ = ["create_app"]
