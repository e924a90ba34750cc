"""The page: what `blueque status`, `show`, `logs` and the other commands say, in a browser.

`create_app` makes an ASGI application for any server; `blueque web` runs it with uvicorn. It needs
the extra `web`. `access.py` and `guard.py` decide who may come in, `reader.py` shares what is read
of Redis between viewers, and `parts.py` answers open pages with what has changed.

May import all rooms but the command line. Begin with `app.py`; `views/` has a module for each page.
"""

from __future__ import annotations

from blueque.web.app import create_app

__all__ = ["create_app"]
