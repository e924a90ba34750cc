"""What a keeper remembers of the modules of a user."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blueque.task_process.remembered import Imports, Remembered

NAMES = ("film", "film.copies", "actors")


@pytest.fixture
def path(tmp_path, monkeypatch) -> Iterator[list[Path]]:
    """Two directories, which are searched first."""
    found = [tmp_path / "first", tmp_path / "second"]
    for directory in found:
        directory.mkdir()
    monkeypatch.setattr(sys, "path", [*map(str, found), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield found
    forget()


def forget() -> None:
    for name in NAMES:
        sys.modules.pop(name, None)


def learned(**modules: Path) -> Remembered:
    remembered = Remembered()
    sources = [(name.replace("__", "."), str(path)) for name, path in modules.items()]
    remembered.learn(Imports([], sources), sys.path)
    return remembered


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_module_comes_from_memory_as_importlib_would_bring_it(path):
    film = write(path[1] / "film.py", "NAME = __name__\n")
    remembered = learned(film=film)
    code = film.read_bytes()
    stat = film.stat()

    module = remembered.load("film")

    assert (sys.modules["film"], module.NAME, module.__file__) == (module, "film", str(film))
    assert (module.__spec__.origin, module.__spec__.name) == (str(film), "film")
    assert (film.read_bytes(), film.stat().st_mtime_ns) == (code, stat.st_mtime_ns)
    assert remembered.load("film") is module


def test_it_is_not_read_again_as_long_as_nothing_has_changed(path, monkeypatch):
    remembered = learned(film=write(path[1] / "film.py", "NAME = 1\n"))
    monkeypatch.setattr("importlib.import_module", None)

    assert remembered.load("film").NAME == 1


def test_what_a_handler_imports_itself_comes_from_memory_as_long_as_it_is_the_same(path):
    film = write(path[1] / "film.py", "NAME = 'first'\n")
    remembered = learned(film=film)

    spec = remembered.find_spec("film")
    write(film, "NAME = 'edited'\n")

    assert (spec.origin, spec.loader.get_code("film").co_consts[0]) == (str(film), "first")
    assert remembered.find_spec("film") is None


def test_an_edited_file_and_one_that_is_found_earlier_count_at_once(path):
    film = write(path[1] / "film.py", "NAME = 'first'\n")
    edited, shadowed = learned(film=film), learned(film=film)

    write(film, "NAME = 'edited'\n")
    assert edited.load("film").NAME == "edited"

    forget()
    write(path[0] / "film.py", "NAME = 'found earlier'\n")
    assert shadowed.load("film").NAME == "found earlier"


def test_a_package_that_takes_the_name_counts_at_once(path):
    remembered = learned(film=write(path[0] / "film.py", "NAME = 'module'\n"))

    write(path[0] / "film" / "__init__.py", "NAME = 'package'\n")

    assert remembered.load("film").NAME == "package"


def test_a_module_of_a_package_is_its_attribute(path):
    package = write(path[1] / "film" / "__init__.py", "NAME = __path__\n")
    copies = write(path[1] / "film" / "copies.py", "from film import NAME\n")
    remembered = learned(film=package, film__copies=copies)

    module = remembered.load("film.copies")

    assert sys.modules["film"].copies is module
    assert [str(package.parent)] == module.NAME


def test_an_import_that_fails_leaves_nothing_behind_and_may_be_tried_again(path):
    broken = (
        "import sys\nif not hasattr(sys, 'works'):\n    PART = 1\n    raise OSError('no disk')\n"
    )
    remembered = learned(film=write(path[1] / "film.py", broken))

    with pytest.raises(OSError, match="no disk"):
        remembered.load("film")
    assert "film" not in sys.modules

    with pytest.raises(OSError, match="no disk"):
        remembered.load("film")
    sys.works = True
    try:
        assert not hasattr(remembered.load("film"), "PART")
    finally:
        del sys.works


THREADS = """
    import sys, threading
    from blueque.task_process.remembered import Imports

    sys.path.insert(0, sys.argv[1])
    before = set(sys.modules)
    import film
    print([name for name, _ in Imports.since(before, ()).sources])
    go = threading.Event()
    threading.Thread(target=go.wait).start()
    print(Imports.since(before, ()).sources)
    go.set()
"""


def test_nothing_is_remembered_of_a_handler_that_starts_threads(path):
    write(path[1] / "film.py", "")

    assert run(THREADS, path[1]) == "['film']\n[]\n"


def run(program: str, argument: Path) -> str:
    """Run a program in a fresh interpreter, and return what it prints."""
    text = "\n".join(line.removeprefix("    ") for line in program.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", text, str(argument)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


LATE = """
    import sys
    from importlib.machinery import PathFinder
    import blueque.task_process.keeper
    from blueque.task_process.package_copy import PackageCopy, make

    assert not {"pathlib", "shutil", "socket", "datetime", "traceback"} & {*sys.modules}
    sys.meta_path[:] = [PackageCopy(make()), *(each for each in sys.meta_path if each is not PathFinder)]
    from blueque.spool.task_spool import remove_tree
    from blueque.spool.outcome_record import record_of
    from blueque.task_process.running_task import RunningTask
    import blueque.text.eta

    try:
        raise ValueError("late")
    except ValueError as error:
        assert "ValueError: late" in record_of(error)["traceback"]
    task = RunningTask("1", {}, sys.argv[1])
    (task.checkpoint_dir / "model").write_text("weights")
    remove_tree(f"{sys.argv[1]}/checkpoint")
"""


def test_what_a_task_process_may_need_late_is_in_memory(tmp_path):
    """Also of the standard library, and all that it imports itself."""
    run(LATE, tmp_path)

    assert list(tmp_path.iterdir()) == []
