"""Print each page with its words and the share of its sentences that have at most 25 words:
`.venv/bin/python docs/table.py`.

Words are all of the page, as `wc -w` counts them. Sentences are those of paragraphs and lists:
without code, tables, headings and notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "deploy/README.md"]
GENERATED = {"docs/commands.md", "docs/json.md"}
LONG = 25  # words

LEFT_OUT = re.compile(r"^ *(`{3,}).*?^ *\1 *$|<!--.*?-->|^(?:\||#|\[\^)[^\n]*", re.M | re.S)
LINK = re.compile(r"\]\([^)]*\)")
END = re.compile(r"(?<=[.!?])[*\")]*\s+|\n\s*(?=\n|[-*] |\d+\. )")


def main() -> None:
    pages = [*(ROOT / name for name in FIRST), *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in pages}
    print(f"{'PAGE':<40}{'WORDS':>8}{'SHORT':>8}")
    for name, text in texts.items():
        print(row(name, [text]))
    written = [text for name, text in texts.items() if name not in GENERATED]
    print(row("together", texts.values()))
    print(row(f"without {' and '.join(sorted(GENERATED))}", written))


def row(name: str, texts: Iterable[str]) -> str:
    text = "\n\n".join(texts)
    lengths = [len(each.split()) for each in sentences(text)]
    share = sum(length <= LONG for length in lengths) / len(lengths)
    return f"{name:<40}{len(text.split()):>8}{share:>8.0%}"


def sentences(text: str) -> list[str]:
    """Return the sentences of the prose of a page."""
    prose = LINK.sub("]", LEFT_OUT.sub("\n", text))
    return [each for each in END.split(prose) if re.search(r"[A-Za-z]", each)]


if __name__ == "__main__":
    main()
