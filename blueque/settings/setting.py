"""Setting: the declaration of one setting."""

from __future__ import annotations

from typing import Any, NamedTuple

from blueque.settings.kinds import Kind


class Setting(NamedTuple):
    """A setting.

    key: in its table of blueque.toml. text: what it does, in sentences.
    default: as `Kind.read` returns it; or a function that finds it on this host.
    default_text: the default in words, if it depends.
    example: as in blueque.toml; None: the default.
    option: its names on the command line, if they do not follow from the key.
    """

    key: str
    kind: Kind
    text: str
    default: Any = None
    default_text: str = ""
    example: Any = None
    option: str = ""

    @property
    def flags(self) -> list[str]:
        """The names of its option, the long one last, as --max-runtime."""
        return self.option.split() or [f"--{self.key.replace('_', '-')}"]

    def get_default(self) -> Any:
        """Return the default on this host."""
        return self.default() if callable(self.default) else self.default

    def get_default_text(self) -> str:
        """Return the default in words; empty: there is none."""
        if self.default_text or self.default is None or callable(self.default):
            return self.default_text
        written = self.kind.write(self.default)
        if isinstance(written, bool):
            return str(written).lower() if written else ""
        return str(written) if written or written == 0 else ""
