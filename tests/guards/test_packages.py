"""The packages: built again they are the same, and what is installed from them runs a task."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from environments import install, python_of
from running import ROOT, clean_environment

OURS = "import blueque, sys; sys.exit(not blueque.__file__.startswith(sys.argv[1]))"


def build(source: Path, *targets: str, mask: int = 0o022) -> dict[str, bytes]:
    """Build packages without the network, and return their bytes by name. mask: the umask."""
    command = [sys.executable, "-m", "hatchling", "build"]
    command += [word for target in targets for word in ("-t", target)]
    environ = clean_environment()
    done = subprocess.run(
        command, cwd=source, env=environ, umask=mask, capture_output=True, text=True
    )
    assert done.returncode == 0, f"bin/test installs hatchling:\n{done.stderr}"
    return {path.name: path.read_bytes() for path in (source / "dist").iterdir()}


def clone(directory: Path, mask: int) -> Path:
    """Clone the repository, with files as a user with this umask has them, of another age each time."""
    subprocess.run(["git", "clone", "-q", ROOT, directory], umask=mask, check=True)
    for number, path in enumerate(sorted(directory.glob("*"))):
        os.utime(path, (mask, 1e9 + mask + number))
    return directory


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> dict[str, bytes]:
    source = clone(tmp_path_factory.mktemp("first") / "blueque", 0o022)
    return build(source, "sdist", "wheel")


def written(packages: dict[str, bytes], directory: Path, ending: str) -> Path:
    """Write the package with this ending of its name to a file."""
    (name,) = (name for name in packages if name.endswith(ending))
    path = directory / name
    path.write_bytes(packages[name])
    return path


def test_packages_are_the_same_when_they_are_built_again(packages, tmp_path):
    again = build(clone(tmp_path / "elsewhere", 0o077), "sdist", "wheel", mask=0o077)

    assert len(packages) == 2 and packages.keys() == again.keys()
    assert [name for name in packages if packages[name] != again[name]] == []


def test_the_source_package_makes_the_same_wheel(packages, tmp_path):
    with tarfile.open(written(packages, tmp_path, ".tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())

    assert build(source, "wheel").items() <= packages.items()


def test_an_installed_wheel_runs_a_task_and_has_manual_pages(packages, tmp_path):
    wheel = written(packages, tmp_path, ".whl")
    directory = tmp_path / "installed"
    install(directory, ["--no-index", "--no-deps", str(wheel)], OURS, sees_ours=True)

    command = [python_of(directory), ROOT / "tests" / "installed.py"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"a task ran with {directory}")
    assert {page.name for page in (directory / "share/man/man1").iterdir()} == {
        "blueque.1",
        "blueque-listener.1",
        "blueque-scheduler.1",
    }
    assert "tests" not in {Path(name).parts[0] for name in zipfile.ZipFile(wheel).namelist()}
