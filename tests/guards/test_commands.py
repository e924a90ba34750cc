"""docs/commands.md and the manual pages are what --help says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROGRAMS = ("blueque", "blueque-listener", "blueque-scheduler")
PAGES = [DOCS / "man" / f"{program}.1" for program in PROGRAMS]


def test_the_reference_of_commands_and_the_manual_pages_are_current():
    command = [sys.executable, "docs/commands.py", "--print"]
    pages = subprocess.run(
        command, cwd=DOCS.parent, stdout=subprocess.PIPE, text=True, check=True
    ).stdout

    # Word by word: versions of click differ in blanks.
    written = "".join(page.read_text() for page in [DOCS / "commands.md", *PAGES])
    assert written.split() == pages.split(), "write them anew: .venv/bin/python docs/commands.py"
    assert sorted((DOCS / "man").iterdir()) == sorted(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=PROGRAMS)
def test_man_shows_a_manual_page_without_a_warning(page):
    man = shutil.which("man")
    assert man, "man is needed: bin/test installs it; on Debian: apt install man-db"
    environ = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}

    command = [man, "--warnings", "--local-file", page]
    shown = subprocess.run(command, env=environ, capture_output=True, text=True)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"{page.stem} [OPTIONS]" in shown.stdout and "\n       --redis-url URL\n" in shown.stdout
