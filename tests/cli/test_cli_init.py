"""`blueque init`: the files of deploy/ as they are, and nothing overwritten."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from blueque.cli.failure import REFUSED, USAGE
from blueque.cli.main import blueque
from blueque.cli.verbs.init import KINDS

ROOT = Path(__file__).parents[2]


def init(*arguments):
    return CliRunner().invoke(blueque, ["init", *arguments])


def contents(directory):
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_are_those_of_deploy_and_are_named(tmp_path, kind):
    result = init(kind, "--dir", str(tmp_path / "new"))

    assert contents(tmp_path / "new") == contents(ROOT / "deploy" / kind)
    assert result.stdout.split() == sorted(
        str(tmp_path / "new" / name) for name in contents(tmp_path / "new")
    )


def test_without_a_directory_it_is_one_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    init("slurm")

    assert [path.name for path in tmp_path.iterdir()] == ["slurm"]


def test_nothing_is_written_when_one_of_the_files_is_there(tmp_path):
    (tmp_path / "compose.yaml").write_text("mine")

    result = init("docker", "--dir", str(tmp_path))

    assert (result.exit_code, contents(tmp_path)) == (REFUSED, {"compose.yaml": "mine"})


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()

    result = init("slurm", "--dir", str(tmp_path / "file" / "in"))

    assert result.exit_code == USAGE and "cannot write" in result.stderr


def test_deploy_has_a_directory_for_each_kind_and_goes_into_the_package():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]

    assert {path.name for path in (ROOT / "deploy").iterdir() if path.is_dir()} == set(KINDS)
    assert build["wheel"]["force-include"] == {"deploy": "blueque/deploy"}
    assert "deploy" in build["sdist"]["include"]
