"""Every relative link in a page of Markdown points to a file that exists and, with a #, to a
heading of that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md")]
PAGES += [page for place in ("docs", "deploy", "examples") for page in (ROOT / place).rglob("*.md")]
FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files_and_headings(page):
    broken = [link for link in links(page.read_text()) if not leads_somewhere(page, link)]
    assert broken == []


def test_every_page_can_be_reached_from_the_readme():
    found, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page not in found and page.suffix == ".md":
            found.add(page)
            targets = (link.partition("#")[0] for link in links(page.read_text()))
            waiting += [
                page.parent / target for target in targets if target and "://" not in target
            ]
    assert {page.relative_to(ROOT) for page in PAGES} - {
        page.relative_to(ROOT) for page in found
    } == set()


def test_headings_become_anchors_as_on_github():
    assert list(
        anchors("# What `--json` prints\n## A, b: c\n```sh\n# no heading\n```\n## A, b: c\n")
    ) == ["what---json-prints", "a-b-c", "a-b-c-1"]


def links(text: str) -> list[str]:
    """Return the relative links of a page, also those of its images."""
    found = LINK.findall(CODE.sub("", FENCED.sub("", text)))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not heading or heading in anchors(target.read_text()))


def anchors(text: str) -> Iterator[str]:
    """Yield what GitHub makes of each heading."""
    seen: dict[str, int] = {}
    for title in re.findall(r"^#+ (.+?)\s*$", FENCED.sub("", text), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        anchor = re.sub(r"[^\w -]", "", words).lower().replace(" ", "-")
        seen[anchor] = seen.get(anchor, -1) + 1
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
