"""The packages that the page needs, which are optional for Blueque."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = ("starlette", "uvicorn", "jinja2")


def missing() -> list[str]:
    """Return which packages the page lacks."""
    return [name for name in PACKAGES if find_spec(name) is None]
