"""docs/commands.md is what --help says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_reference_of_commands_is_current():
    command = [sys.executable, "docs/commands.py", "--print"]
    page = subprocess.run(
        command, cwd=DOCS.parent, stdout=subprocess.PIPE, text=True, check=True
    ).stdout

    # Word by word: versions of click differ in blanks.
    assert (DOCS / "commands.md").read_text().split() == page.split(), (
        "write it anew: .venv/bin/python docs/commands.py"
    )
