"""The files in bin/ and .ci/: they can be run, they parse, and the README names those a stranger
needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ["bin/blueque", "bin/blueque-listener", "bin/blueque-scheduler"]
COMMANDS = ["bin/bench", "bin/demo", "bin/docs", "bin/matrix", "bin/soak", "bin/test", ".ci/run"]
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


def ask_for_java(directory: Path, version: str | None, **environ: str) -> str:
    """Ask setup.sh where nothing can be installed, and where `java -version` prints what Java of
    this version does.
    """
    printed = version and f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"
    return ask_for("java", directory, printed, **environ)


def ask_for(program: str, directory: Path, script: str | None, **environ: str) -> str:
    """Ask setup.sh for a program where nothing can be installed. script: what the program is; None:
    there is none.
    """
    for name in ("sh", "sed", "head", "dirname", "readlink", "basename"):
        (directory / name).symlink_to(shutil.which(name) or "")
    if script is not None:
        (directory / program).write_text(f"#!/bin/sh\n{script}\n")
        (directory / program).chmod(0o755)
    ask = f'. "${{0%test}}setup.sh"; if ensure_{program}; then echo yes; else echo "${program}_found"; fi'
    found = subprocess.run(
        ["/bin/sh", "-c", ask, ROOT / "bin/test"],
        env={"PATH": str(directory), **environ},
        capture_output=True,
        text=True,
    )
    assert found.stderr == ""
    return found.stdout.strip()


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("17.0.15", "yes"),
        ("21", "yes"),
        ("25.0.1-ea", "yes"),
        ("11.0.2", "Java 11.0.2"),
        ("1.8.0_292", "Java 1.8.0"),
        (None, "no Java"),
    ],
)
def test_setup_finds_a_java_that_is_new_enough(tmp_path, version, answer):
    assert ask_for_java(tmp_path, version) == answer


def test_setup_looks_for_java_where_spark_does(tmp_path):
    home = tmp_path / "home"

    assert ask_for_java(tmp_path, "17.0.15", JAVA_HOME=str(home)) == f"no Java in JAVA_HOME, {home}"


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("v18.20.4", "yes"),
        ("v22.1.0-nightly", "yes"),
        ("v16.20.2", "Node.js 16.20.2"),
        (None, "no Node.js"),
    ],
)
def test_setup_finds_a_node_that_is_new_enough(tmp_path, version, answer):
    assert ask_for("node", tmp_path, version and f"echo {version}") == answer


def test_setup_asks_for_the_server_that_the_tests_start():
    """The question is one of the package, whose modules have moved before."""
    ask = f'. "{ROOT}/bin/setup.sh"; venv="{Path(sys.executable).parent.parent}"; cd "{ROOT}"; has_redis && echo yes'

    found = subprocess.run(
        ["/bin/sh", "-c", ask, ROOT / "bin" / "test"], capture_output=True, text=True
    )

    assert (found.stdout.strip(), found.stderr) == ("yes", "")


def test_the_tests_say_which_package_they_miss(tmp_path):
    text = (ROOT / "bin" / "test").read_text()

    for package, function in (
        ("redis-server", "redis"),
        ("default-jre-headless", "java"),
        ("nodejs", "node"),
        ("man-db", "man"),
    ):
        assert f"ensure_{function} || give_up" in text and f"apt install {package}" in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_from_any_directory_and_through_a_link(name, tmp_path):
    (tmp_path / "blueque.py").write_text("raise SystemExit('the wrong blueque')")
    (tmp_path / "link").symlink_to(ROOT / name)
    # Without .venv they take python3 from the path: it should be the one that runs the tests.
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    done = subprocess.run(
        ["./link", "--version"], cwd=tmp_path, env=environ, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{Path(name).name} ")
