"""A blueque.toml with every setting, commented out: for `blueque config --example`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from blueque.settings.setting import Setting
from blueque.settings.table import TABLES

_HEAD = "Every setting of Blueque, commented out. docs/configuration.md explains them."
_HEADS = {
    "redis": ("[redis]", "How every program uses Redis."),
    "listener": ("[listener]", "For each blueque-listener."),
    "queues": (
        '[queues."render.4k"]',
        "For one queue; a name with a dot needs quotes. [listener] and [retention] have the defaults.",
    ),
    "retention": ("[retention]", "How long finished tasks stay in Redis."),
    "statistics": ("[statistics]", "The numbers of blueque stats."),
    "show": ("[show]", "What commands and the page show."),
    "payloads": (
        "[payloads]",
        "How parameters, results, checkpoints, contexts and logs are stored.",
    ),
    "scheduler": ("[scheduler]", "For each blueque-scheduler."),
    "schedules": (
        "[schedules.nightly]",
        "A recurring task; blueque schedule apply writes it to Redis.",
    ),
    "aliases": ("[aliases]", "Other names of queues; they are not in Redis."),
    "fanouts": ("[fanouts]", "client.get_fanout makes one task in each of these queues."),
    "web": ("[web]", "For blueque web."),
}
_NAMES = {
    "aliases": 'thumbnails = "images.small"',
    "fanouts": 'formats = ["encode.av1", "encode.h264"]',
}
_OTHERS = ("exec", "every")  # cannot stand beside what comes before them


def text() -> str:
    """Return the text of the file. Without the # before keys and tables, it is a valid file."""
    return (
        "\n".join([*_comment(_HEAD), *(line for table in TABLES for line in _table(table))]) + "\n"
    )


def to_toml(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {to_toml(one)}' for key, one in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def shown_example(setting: Setting) -> Any:
    """Return an example of a value in TOML: the default if there is none."""
    if setting.example is not None:
        return setting.example
    return setting.kind.write(setting.get_default())


def _table(table: str) -> Iterator[str]:
    if table:
        name, sentence = _HEADS[table]
        yield from ("", *_comment(sentence), f"#{name}")
    if table in _NAMES:
        yield f"#{_NAMES[table]}"
    for setting in TABLES[table]:
        default = setting.get_default_text()
        yield ""
        yield from _comment(f"{setting.text} Default: {default}." if default else setting.text)
        mark = "# " if setting.key in _OTHERS else "#"
        yield f"{mark}{setting.key} = {to_toml(shown_example(setting))}"


def _comment(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, 100, initial_indent="# ", subsequent_indent="# ")
