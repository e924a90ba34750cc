"""The site of the documents: built strictly and without network, complete, and searched without a
server.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from chromium import find_chromium
from playwright.sync_api import sync_playwright

import blueque
from blueque import spark, testing
from docs.site import api, build
from docs.site.docstrings import markdown
from docs.site.lists import as_python_markdown

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            patch.setenv(name, NOWHERE)
            patch.setenv(name.upper(), NOWHERE)
        build.main(directory / "work", directory / "site")
    return directory / "site"


def test_every_page_is_in_the_navigation():
    listed = {*re.findall(r"'([^']+\.md)'", str(list(build.sections())))}

    pages = (path.relative_to(build.ROOT) for path in (build.ROOT / "docs").rglob("*.md"))
    places = {build.place(str(page)) for page in pages}
    assert places - {"contents.md"} <= listed


def test_the_reference_has_every_public_name(site):
    public = {f"blueque.{name}" for name in blueque.__all__ if name != "__version__"}
    for module in (spark, testing):
        public |= {f"{module.__name__}.{name}" for name in module.__all__}

    text = "".join(page.read_text() for page in (site / "api").iterdir())
    shown = {*re.findall(r'id="(blueque\.[\w.]+)"', text)}
    assert public - shown == set()
    assert {"blueque.Client.get_queue", "blueque.Task.status"} <= shown
    assert 'id="blueque.Queue.enqueue_many"' in text, "the methods of a mixin are shown, too"


def test_the_reference_is_made_with_the_packages_of_the_site_alone():
    others = (
        "pyspark",
        "pyarrow",
        "greenlet",
        "msgspec",
        "pydantic",
        "pytest",
        "fakeredis",
        "starlette",
    )
    hide = f"import sys; sys.modules |= dict.fromkeys({others}); "
    make = "from docs.site import api; print(len(api.pages()))"
    done = subprocess.run([sys.executable, "-c", hide + make], cwd=build.ROOT, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"%d\n" % (len(api.PAGES) + 1)), done.stderr


def test_a_block_with_a_title_is_shown_as_a_file(tmp_path):
    built(tmp_path, '```python title="tasks.py"\nimport blueque\n```\n')

    assert '<span class="filename">tasks.py</span>' in (tmp_path / "site/index.html").read_text()


@pytest.mark.parametrize(
    ("link", "why"),
    [("[x](nowhere.md)", "page does not exist"), ("[x](#nothing)", "anchor does not exist")],
)
def test_the_build_refuses_what_leads_nowhere(tmp_path, link, why):
    with pytest.raises(SystemExit, match=re.escape(why)):
        built(tmp_path, f"# Page\n\n{link}\n")


def built(directory: Path, page: str) -> None:
    (directory / "pages").mkdir()
    (directory / "pages/index.md").write_text(page)
    build.build(directory, directory / "site", ["index.md"])


def test_the_search_needs_neither_a_server_nor_a_network(site):
    with sync_playwright() as playwright:
        options = ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=options)
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{site}/index.html")
        page.keyboard.press("Control+k")
        page.keyboard.type("stall limit")
        page.get_by_role("option", name="Limits").first.click()
        page.wait_for_url("**/guide/retries-and-limits.html*")
        browser.close()

    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_lists_are_as_python_markdown_reads_them():
    page = "Text:\n1. one\n   ```sh\n   - a\n   ```\n   - two\n     more\n\nEnd\n"

    assert as_python_markdown(page) == (
        "Text:\n\n1. one\n    ```sh\n    - a\n    ```\n    - two\n        more\n\nEnd\n"
    )


def test_a_docstring_becomes_markdown():
    assert markdown(
        "Do it, or\nraise RedisAway.\nfirst, *rest: text,\n    <b>`*`. last: x.\nMore. Raises KeyError\n"
        "if it is\nnot: there. Source: docs/concepts.md."
    ) == (
        "Do it, or raise [RedisAway][blueque.RedisAway].\n\n"
        "`first`, `*rest`\n:   text, \\<b>`*`.\n\n`last`\n:   x.\n\nMore.\n\nRaises\n:   KeyError if it is not: there.\n\n"
        "Source\n:   [Concepts](../concepts.md)."
    )
