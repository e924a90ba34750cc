"""Settings: each is declared once, as a row of a table, with its kind of value and its text.

May import: connection/ and what is below it. Begin with table.py; resolver.py decides which value
applies.
"""

from typing import TYPE_CHECKING, Any

from blueque.settings.contents import Config

if TYPE_CHECKING:
    from blueque.settings.file import load

__all__ = ["Config", "load"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "load":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # here: it takes a dozen modules, and most programs that make a Client read no file
        from blueque.settings.file import load

        return load
