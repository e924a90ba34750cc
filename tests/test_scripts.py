"""The files in bin/ and .ci/: they can be run, they parse, and the README names those a stranger needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = ["bin/blueque", "bin/blueque-listener", "bin/blueque-scheduler"]
COMMANDS = ["bin/bench", "bin/demo", "bin/soak", "bin/test", ".ci/run"]
SOURCED = ["bin/setup.sh"]


def test_every_file_in_bin_is_known_here():
    assert sorted(f"bin/{path.name}" for path in (ROOT / "bin").iterdir()) == sorted(
        name for name in [*PROGRAMS, *COMMANDS, *SOURCED] if name.startswith("bin/")
    )


@pytest.mark.parametrize("name", [*PROGRAMS, *COMMANDS])
def test_what_is_to_be_run_is_executable(name):
    assert os.access(ROOT / name, os.X_OK)
    assert (ROOT / name).read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("name", [*PROGRAMS, *COMMANDS, *SOURCED])
def test_shells_can_parse_it(name, shell):
    assert subprocess.run([shell, "-n", ROOT / name], capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("name", ["bin/demo", "bin/test"])
def test_the_readme_names_it(name):
    assert f"\n{name} " in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_from_any_directory_and_through_a_link(name, tmp_path):
    (tmp_path / "blueque.py").write_text("raise SystemExit('the wrong blueque')")
    (tmp_path / "link").symlink_to(ROOT / name)
    # Without .venv they take python3 from the path: it should be the one that runs the tests.
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    done = subprocess.run(["./link", "--version"], cwd=tmp_path, env=environ, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{Path(name).name} ")
