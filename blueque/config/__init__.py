"""Settings from blueque.toml: found, read, checked.

May import: connection/ and what is below it. Begin with toml_file.py.
"""

from typing import TYPE_CHECKING, Any

from blueque.config.contents import Config, QueueConfig

if TYPE_CHECKING:
    from blueque.config.toml_file import load

__all__ = ["Config", "QueueConfig", "load"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "load":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # here: it takes a dozen modules, and most programs that make a Client read no file
        from blueque.config.toml_file import load

        return load
