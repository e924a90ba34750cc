"""The tables of docs/configuration.md are those of the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_tables_of_settings_are_current():
    command = [sys.executable, "docs/configuration.py", "--print"]
    page = subprocess.run(
        command, cwd=DOCS.parent, stdout=subprocess.PIPE, text=True, check=True
    ).stdout

    assert (DOCS / "configuration.md").read_text() == page, (
        "write them anew: .venv/bin/python docs/configuration.py"
    )
