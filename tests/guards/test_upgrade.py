"""The wheel has what processes of the previous release still import, at the paths where they look
for it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path, PurePath

import pytest
from running import ROOT, Programs, clean_environment, outcome

HOME = "blueque/previous_release"
PROGRAMS = {"roster", "spawned", "listener_main"}
# The ids that `git ls-tree -r` shows for these files in the previous release, commit 8d233c8.
COPIES = {
    "batches": "7c1c1608e2e57185f4327c749ab41ce44e377ecd",
    "bulk": "db0206034c08f01c0ffcb4e822b8cd68a2464569",
    "ended": "b4bc22ab8e621effdfc582fb2d1bb353be25a2e8",
    "failures": "a17140c9c7d854b93db216fca1a0c83d849d3ec8",
    "frozen": "d086bad91d3619ac346622d191a568782bfb93e2",
    "leftovers": "8a1f7ea903321b8e760da4c3e3381ec030497da8",
    "listeners": "188a333af1a5d7b1756224acd9b6d0b28b329d47",
    "processor": "5ef1b5fb1e71f55d096ecf5a5af00401994976c1",
    "protocol.rights": "e16621f3d09e9133c3571c5217898e8ee5b15e78",
    "queue": "92a051f55dfa95260586833e1675b631315ef0a5",
    "recoveries": "fa8be7e06b71906a2b374e4f197450c6197e048f",
    "retention": "e17615f9f5163483a0bac8d6fe92a1bbb9c7c29b",
    "rows": "288736529169f8ce6c93241a02a6fd2a37fde01e",
    "runs": "0a6e6cac2d9052d0979430c9b9eef2ebc48312d5",
    "staging": "4aca859d7cb9c9eac5edd2cb98620797f8f8062e",
    "telling": "9d0ab8617a837cb2e98ede581d9e6361113422bd",
    "timeline": "4e7b00a15afb01f4d5bd73584de057e510cedd46",
    "toml_lines": "a0165fbb092fc436e076da12677f3b51f571a8ed",
    "tracking": "9f0470d9886cc7392abb33eb7a10106331dc8301",
    "tree": "76b3db574c643aa6b331bd15ce53a578aafeac5e",
    "watcher": "4f5db4f07e03792b16c19439cec218e05f62e5e2",
}
# What `import blueque.listener_main` has put into the memory of a listener of the previous release,
# and of its tasks.
MEMORY = """
    address adoption attempt attending checkpoint_files checkpoints client client_connection columns commands config
    connection defaults errors estimate exit_records feeds forwarding freeing gate gauge histogram history hosts inquiry
    inspector keys launching limits line_up lines listener listener_group listener_main log_writer logs master nodes notify
    orders output overview pauses places plain_files printed proc process protocol protocol.archiving protocol.attempt
    protocol.bulk protocol.control protocol.events protocol.feeding protocol.freezing protocol.looks protocol.membership
    protocol.output protocol.pruning protocol.queues protocol.recover protocol.repair protocol.run protocol.runs
    protocol.several protocol.staging protocol.submit protocol.take protocol.transaction protocol.waiting publisher records
    recovery rereading resources retry roster run_record running_task selection settings signals slot snapshots
    socket_connection spares spawned spool spool_size stack statistics survey tail task task_id task_log task_process trouble
    upkeep values verdicts version waiting watch wording work wrong_types
"""
IMPORTABLE = {*MEMORY.split(), *COPIES}

# Has the package of this version start its programs under their old names.
OLD_NAMES = """
    import os

    OLD = {"blueque.node.main": "blueque.listener_main", "blueque.task_process.fresh_interpreter": "blueque.spawned"}
    execve = os.execve
    os.execve = lambda path, words, environ: execve(path, [OLD.get(word, word) for word in words], environ)
"""
SPAWNED_WORK = """
    import sys

    def run(task):
        import blueque
        return [sys.orig_argv[2:4], blueque.__file__]
"""


def path_of(name: str) -> Path:
    return ROOT / HOME / f"{name.replace('.', '/')}.py"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """A directory with what the wheel holds: built where there is hatchling, else laid out as
    pyproject.toml says.
    """
    directory = tmp_path_factory.mktemp("wheel")
    if importlib.util.find_spec("hatchling"):
        build = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-t",
            "wheel",
            "-d",
            str(directory / "built"),
        ]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        with zipfile.ZipFile(*(directory / "built").glob("*.whl")) as file:
            file.extractall(directory)
        return directory
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    for package in rules["packages"]:
        for path in sorted((ROOT / package).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.is_dir() or "__pycache__" in path.parts or name in rules["exclude"]:
                continue
            source = next(
                (source for source in rules["sources"] if name.startswith(f"{source}/")), None
            )
            place = (
                name
                if source is None
                else str(PurePath(rules["sources"][source], name.removeprefix(f"{source}/")))
            )
            target = directory / place
            assert not target.exists(), f"{name} would replace another file at {place}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return directory


def test_the_directory_holds_the_programs_and_the_copies_and_nothing_else():
    found = {
        path.relative_to(ROOT / HOME).with_suffix("").as_posix()
        for path in (ROOT / HOME).rglob("*.py")
    }
    assert {name.replace("/", ".") for name in found} == PROGRAMS | {*COPIES}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_exact(name):
    text = path_of(name).read_bytes()
    assert hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest() == COPIES[name]


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_imports_only_what_an_old_listener_has_in_memory_and_other_copies(name):
    for node in ast.walk(ast.parse(path_of(name).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "blueque":
            assert {alias.name for alias in node.names} <= IMPORTABLE
        elif (
            isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("blueque.")
        ):
            assert node.module.removeprefix("blueque.") in IMPORTABLE
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("blueque") for alias in node.names)


def test_nothing_imports_the_files_of_the_previous_release():
    old = {f"blueque.{name}" for name in (*COPIES, *PROGRAMS)}
    for path in [
        *(ROOT / "blueque").rglob("*.py"),
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
    ]:
        if path.is_relative_to(ROOT / HOME):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
            else:
                continue
            assert not names & old and not any("previous_release" in name for name in names), (
                f"{path}: {names}"
            )


def test_the_wheel_has_each_file_at_its_old_path_and_no_other_trace_of_the_directory(wheel):
    for name in (*PROGRAMS, *COPIES):
        installed = wheel / "blueque" / f"{name.replace('.', '/')}.py"
        assert installed.read_bytes() == path_of(name).read_bytes()
        assert not (wheel / "blueque" / name.replace(".", "/")).is_dir(), (
            f"a directory hides {installed}"
        )
    assert not (wheel / HOME).exists() and not (wheel / "blueque/README.md").exists()
    assert (wheel / "blueque/__init__.py").read_bytes() == (
        ROOT / "blueque/__init__.py"
    ).read_bytes()


def test_the_programs_of_the_previous_release_start_under_their_names(wheel, url, tmp_path):
    names = tmp_path / "names"
    names.mkdir()
    environ = {"PYTHONPATH": os.pathsep.join([str(names), str(wheel)])}
    with Programs(url, tmp_path, environ) as programs:
        programs.write(SPAWNED_WORK)
        programs.write(OLD_NAMES, "names/sitecustomize.py")
        listener = programs.listener("work:run", "--spawn")
        task_id = programs.client.get_queue("work").enqueue("")
        ended = outcome(programs.client, task_id)
        assert ended.status == "complete", ended.error
        assert "blueque.spawned" in str(ended.result) and str(wheel) in str(ended.result)
        assert b"\0blueque.listener_main\0" in Path(f"/proc/{listener.pid}/cmdline").read_bytes()

        environ |= {"BLUEQUE_SPOOL": str(tmp_path / "spool")}
        check = subprocess.run(
            [sys.executable, "-P", "-m", "blueque.roster"],
            env=clean_environment() | environ,
            capture_output=True,
            text=True,
        )
        assert (check.returncode, check.stdout, check.stderr) == (0, "1 listener\n", "")
        assert listener.stop() == 0
