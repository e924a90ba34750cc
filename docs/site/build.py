"""Build the site of the documents into site/ and check every link: `bin/docs` runs this.

The pages are the Markdown files that README.md and docs/README.md lead to, as they are on GitHub. A
file of another kind to which a page links becomes a page that shows it. The navigation is the lists
of docs/README.md. The reference of the API comes from the docstrings, see api.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.site import api
from docs.site.lists import as_python_markdown

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
HOME = "README.md"
INDEX = "docs/README.md"
PLACES = {
    HOME: "index.md",
    INDEX: "contents.md",
    "docs/protocol.md": "protocol/index.md",
    "blueque/__init__.py": api.CONTENTS,
}
AS_THEY_ARE = {".md", ".png", ".svg"}
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml"}

CODE = re.compile(r"^ *(`{3,})[^\n]*\n.*?^ *\1 *$|`[^`\n]+`", re.M | re.S)
LINK = re.compile(r"\]\((?![a-z]+:)([^()\s#]+)")
BADGE = re.compile(r"^\[!\[.*\n", re.M)
SECTION = re.compile(r"^## (.+)\n((?:(?!## ).*\n)*)", re.M)
ENTRY = re.compile(r"\[([^\]]+)\]\(([^()\s]+)\)")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
UNTROUBLED = re.compile(r"(Build [^\n]*\n|No issues found|\s)*")


def main(work: Path = ROOT / "build" / "site", site: Path = ROOT / "site") -> None:
    """Collect the pages in `work` and build them into `site`, or exit with what is wrong."""
    pages = work / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for place, content in {**collected(), **api.pages()}.items():
        (pages / place).parent.mkdir(parents=True, exist_ok=True)
        (pages / place).write_bytes(content)
    for name in ("style.css", "iframe-worker.js"):
        shutil.copy(HERE / name, pages)
    build(work, site, list(sections()))
    print(site / "index.html")


def build(work: Path, site: Path, navigation: list[object]) -> None:
    """Have Zensical check and build the pages."""
    settings = (HERE / "zensical.toml").read_text()
    head = f"[project]\nnav = {as_toml(navigation)}\n"
    (work / "zensical.toml").write_text(settings.replace("[project]\n", head, 1))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}  # for docs.site.docstrings
    done = subprocess.run(command, cwd=work, env=environ, capture_output=True, text=True)
    said = COLOUR.sub("", done.stdout + done.stderr)
    if done.returncode or not UNTROUBLED.fullmatch(said.partition("Traceback")[0]):
        sys.exit(said)
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(work / "html", site)


def collected() -> dict[str, bytes]:
    """Return the content of each file that can be reached, by its place in the site."""
    found: dict[str, bytes] = {}
    waiting = [HOME, INDEX]
    while waiting:
        path = waiting.pop()
        source = ROOT / path
        if place(path) in found or place(path) == api.CONTENTS or not source.is_file():
            continue
        content = source.read_bytes()
        if source.suffix == ".md":
            text = BADGE.sub("", content.decode())
            waiting += targets(path, text)
            content = as_python_markdown(relinked(path, text)).encode()
        elif source.suffix not in AS_THEY_ARE:
            language = LANGUAGES.get(source.suffix, "text")
            content = f"# {source.name}\n\n````{language}\n{content.decode()}````\n".encode()
        found[place(path)] = content
    return found


def place(path: str) -> str:
    """Return where a file of the repository is in the site."""
    path = PLACES.get(path) or path.removeprefix("docs/").replace("/README.md", ".md")
    return path if Path(path).suffix in AS_THEY_ARE else f"{path}.md"


def targets(path: str, text: str) -> list[str]:
    """Return the files to which the page at `path` links, in its order."""
    return [target(path, link[1]) for link in LINK.finditer(CODE.sub("", text))]


def target(path: str, link: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(path), link))


def relinked(path: str, text: str) -> str:
    """Return the text of a page with its links as they are in the site."""
    folder = os.path.dirname(place(path)) or "."

    def link(match: re.Match[str]) -> str:
        return f"]({os.path.relpath(place(target(path, match[1])), folder)}"

    parts, last = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(link, text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*parts, LINK.sub(link, text[last:])])


def sections() -> Iterator[object]:
    """Yield each section of docs/README.md with its pages. A section of one page is that page."""
    for name, text in SECTION.findall((ROOT / INDEX).read_text()):
        pages = [{title: entry(target(INDEX, link))} for title, link in ENTRY.findall(text)]
        yield {name: next(iter(pages[0].values())) if len(pages) == 1 else pages}


def entry(path: str) -> object:
    """Return the place of a page. Those of its folder follow, in the order of its links."""
    below: list[object] = []
    if place(path) == api.CONTENTS:
        below = [{title: api.place(title)} for title in api.PAGES]
    elif path in PLACES.keys() - {HOME}:
        linked = dict.fromkeys(map(place, targets(path, (ROOT / path).read_text())))
        below = [each for each in linked if Path(each).parent == Path(place(path)).parent]
    return [place(path), *below] if below else place(path)


def as_toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        pairs = [f"{json.dumps(name)} = {as_toml(each)}" for name, each in value.items()]
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
