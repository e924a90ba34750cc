"""Write docs/json.md, the reference of `--json`, from blueque/documents/fields.txt:
`.venv/bin/python docs/json_page.py`. With --print, print the page.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from blueque.documents import schema

NAMES, TYPES = 28, 23  # columns
PAGE = Path(__file__).with_name("json.md")
HEAD = """# What --json prints

With `--json` a verb prints one object instead of text, and nothing else on standard output. Remarks and errors go to
standard error, and the exit code is the same.

```json
{"blueque": 2, "kind": "tasks", "items": []}
```

- `blueque` is the version of this format, and `kind` the kind of object. `log`, `event` and `result` are JSON lines: one object
  on each, as it comes.
- Within a version, fields and kinds may be added. The others keep their name, type and meaning.
- A *time* comes twice: `created` is text in ISO 8601 in UTC, and `created_seconds` the same in Unix seconds. Durations are
  seconds, and sizes bytes.
- A task is named by its id. `null` means none, or not known. An *optional* field can be missing.
- A `code` names a kind of problem. A `command` tells more, or helps. `has_more`: not all are shown.
- Numbers are never NaN or infinite. Characters that turn or hide text are escaped.
- Parameters and results are JSON, or else text. In parameters, secrets are [`"[hidden]"`](security.md#secrets).
- [The page](guide/web.md#for-programs) serves the kinds that only read over HTTP, at `/api/v1/KIND`.
- Each line of `blueque export` is the `item` of a [`task`](#task), without the signs of what runs.

The verb of its name prints a kind, unless its section names others.
"""


def page() -> str:
    """Return the text of the page."""
    shapes = schema.read()
    parts = [section for shape in shapes if not shape.kinds for section in describe(shape)]
    kinds = [section for shape in shapes if shape.kinds for section in describe(shape)]
    return "\n".join([HEAD, "## Parts\n", *parts, "## Kinds\n", *kinds]).rstrip() + "\n"


def describe(shape: schema.Shape) -> Iterator[str]:
    """Yield the lines of the section of a shape."""
    names = ", ".join(f"`{kind}`" for kind in shape.kinds)
    yield f"### {names or shape.name.capitalize()}\n"
    verbs = ", ".join(f"`{verb}`" for verb in shape.verbs)
    is_plain = shape.verbs == [kind.replace("_", " ") for kind in shape.kinds]
    words = ["" if is_plain else f"Printed by {verbs}.", shape.note]
    if any(words):
        yield textwrap.fill(" ".join(filter(None, words)), 118) + "\n"
    yield "```text"
    for line in shape.lines:
        names = ", ".join(field.name for field in line)
        kind = line[0].type.strip("<>")
        kind += ", optional" if line[0].is_optional else ""
        if len(names) > NAMES:
            yield names
            names = ""
        begin = f"{names:<{NAMES}} {kind:<{TYPES}} "
        rest = " " * len(begin)
        yield textwrap.fill(
            begin + line[0].text.replace("`", ""),
            118,
            subsequent_indent=rest,
            break_on_hyphens=False,
        ).rstrip()
    yield "```\n"


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(page(), end="")
    else:
        PAGE.write_text(page())
