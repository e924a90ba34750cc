"""What `import blueque` offers: all of it, nothing else, explained, and cheap."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pickle
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, Programs, outcome

import blueque
from blueque import errors, spark

HEAVY = ["redis", "pyspark", "pyarrow", "click"]


def test_what_the_package_shows_is_what_type_checkers_see():
    hints = ast.parse(inspect.getsource(blueque)).body
    typed, _ = [node for node in hints if isinstance(node, ast.If)]
    for_checkers = {
        (alias.name, node.module)
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    shown = {(name, f"blueque.{module}") for name, module in blueque._MODULES.items()}
    assert for_checkers - shown == {("*", "blueque.errors")}
    assert {module for _, module in shown - for_checkers} == {"blueque.errors"}
    assert len(blueque.__all__) == len({*blueque.__all__})
    assert {*blueque.__all__} <= {*dir(blueque)}
    assert not hasattr(blueque, "Nothing")


def test_what_is_imported_when_it_is_asked_for_is_not_before():
    code = (
        "import sys, blueque; print([name for name in sys.modules if name.startswith('blueque.')])"
    )

    shown = subprocess.run(
        [sys.executable, "-c", code], timeout=30, capture_output=True, text=True
    ).stdout
    assert shown == "['blueque.version']\n"


def test_the_help_of_a_command_imports_what_the_command_line_needs_and_no_more():
    code = (
        "import sys; sys.argv = ['blueque', '--help']\n"
        "from blueque.cli.main import main\n"
        "try: main()\n"
        "finally: print(len([name for name, module in sys.modules.items()\n"
        "    if name.startswith('blueque.') and not hasattr(module, '__path__')]), file=sys.stderr)"
    )

    shown = subprocess.run([sys.executable, "-c", code], timeout=30, capture_output=True, text=True)

    assert int(shown.stderr) <= 13, (
        "each module costs a millisecond or more of each completion and each help"
    )


@pytest.mark.parametrize(
    ("call", "modules"), [("get_task('none')", 45), ("get_queue('video').enqueue(1)", 110)]
)
def test_a_client_imports_what_a_call_needs_and_no_more(url, call, modules):
    code = (
        "import sys; from blueque import Client\n"
        f"Client(sys.argv[1]).{call}\n"
        "print(len([name for name in sys.modules if name.partition('.')[0] == 'blueque']))"
    )

    shown = subprocess.run(
        [sys.executable, "-c", code, url], timeout=30, capture_output=True, text=True
    )

    assert int(shown.stdout) <= modules, "each process that uses Blueque pays for each module"


def public_things() -> Iterator[tuple[str, Any]]:
    """Yield the exports that are classes and functions, and the methods of those classes, with
    their names.
    """
    for name in blueque.__all__:
        export = getattr(blueque, name)
        if inspect.isclass(export) or inspect.isfunction(export):
            yield name, export
        for member, value in vars(export).items() if inspect.isclass(export) else ():
            if isinstance(value, classmethod | staticmethod):
                value = value.__func__
            if inspect.isfunction(value) and not member.startswith("_"):
                yield f"{name}.{member}", value


def says_itself(thing: Any) -> bool:
    """Tell whether a function needs no docstring: one line that returns a value, under a name that
    says which.
    """
    if not inspect.isfunction(thing):
        return False
    (function,) = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(thing)}")).body
    return (
        isinstance(function, ast.FunctionDef)
        and len(function.body) == 1
        and isinstance(function.body[0], ast.Return)
    )


def is_explained(thing: Any) -> bool:
    # An exception's own docstring, not the one that it inherits.
    own = thing.__doc__ if inspect.isfunction(thing) else vars(thing).get("__doc__")
    return re.match(r"[A-Z]", own) is not None if own else says_itself(thing)


def test_every_public_class_and_method_is_explained_by_a_sentence():
    """Properties may go without: their name says what they are."""
    things = dict(public_things())

    assert len(things) > 200
    assert [name for name, thing in things.items() if not is_explained(thing)] == []


def drawn_tree() -> dict[str, tuple[str, str]]:
    """Return what the docstring of errors.py draws: class -> (the one it hangs from, builtin in
    parentheses).
    """
    drawn: dict[str, tuple[str, str]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines()[1:]:
        match = re.match(r"((?:[|`]-- |\|   |    )*)([A-Z]\w+)(?: \((\w+)\))?", line)
        if match:
            depth = len(match[1]) // 4
            path = [*path[:depth], match[2]]
            drawn[match[2]] = (path[depth - 1] if depth else "Exception", match[3] or "")
    return drawn


def test_the_tree_of_errors_is_as_drawn_and_exported():
    defined = {
        name: (error.__bases__[0].__name__, "".join(base.__name__ for base in error.__bases__[1:]))
        for name, error in vars(errors).items()
        if inspect.isclass(error) and error.__module__ == errors.__name__
    }

    assert drawn_tree() == defined
    assert {*defined} <= {*blueque.__all__}


@pytest.mark.parametrize("name", drawn_tree())
def test_an_error_comes_from_another_process_as_it_was(name):
    error = getattr(errors, name)
    samples = {
        "int": 7,
        "float": 0.5,
        "list[str]": ["id"],
        "bool": True,
        "wanted": "delete",
        "BluequeError": errors.BluequeError("why"),
        "Mapping[str, str | None]": {"id": "started"},
    }
    its = inspect.signature(error).parameters.values() if "__init__" in vars(error) else ()
    raised = error(
        *[samples.get(each.annotation, samples.get(each.name, each.name)) for each in its]
    )
    raised.add_note("a note")

    copied = pickle.loads(pickle.dumps(raised))

    assert type(copied) is error and (str(copied), copied.args) == (str(raised), raised.args)
    assert {**vars(copied), "why": ""} == {**vars(raised), "why": ""}


@pytest.mark.parametrize("module", ["blueque", "blueque.spark"])
@pytest.mark.parametrize("package", HEAVY)
def test_what_importing_does_not_load(package, module):
    code = f"import sys, {module}; sys.exit({package!r} in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


def test_no_program_loads_what_only_pipelines_need(url, tmp_path):
    with Programs(url, tmp_path) as programs:
        # They start here, so that this is what they would load.
        for package in ("pyspark", "py4j", "pyarrow", "pandas"):
            programs.write("open('loaded', 'a').write(__name__)", f"{package}.py")
        programs.write("def run(task): return task.parameters")
        programs.listener("work:run")
        programs.scheduler().says("scheduler")
        task_id = programs.client.get_queue("work").enqueue("as it was")
        shown = programs.start(
            [sys.executable, "-m", "blueque.cli.main", "status", "--redis-url", url]
        )

        assert (outcome(programs.client, task_id).result, shown.wait()) == ("as it was", 0)
        assert not (tmp_path / "loaded").exists()


def test_the_contents_of_blueque_spark_are_sorted_explained_and_where_it_says():
    assert sorted(spark.__all__) == spark.__all__ == sorted(spark._MODULES)
    hidden = {*spark.__all__} & {path.stem for path in Path(spark.__file__).parent.iterdir()}
    assert not hidden, (
        f"these names of blueque.spark are those of modules, which take their place once imported: {hidden}"
    )
    for name, module in spark._MODULES.items():
        tree = ast.parse((Path(spark.__file__).parent / f"{module}.py").read_text())
        thing = next(node for node in tree.body if getattr(node, "name", None) == name)
        assert isinstance(thing, ast.FunctionDef | ast.ClassDef)
        assert re.match(r"[A-Z]", ast.get_docstring(thing) or ""), (
            f"{name}: the docstring begins with a sentence"
        )


def test_without_pyspark_blueque_spark_says_what_to_install(tmp_path):
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError(name='pyspark.sql')")
    code = "import blueque, blueque.spark as bs\ntry: bs.session\nexcept blueque.NotInstalled as error: print(error)"
    path = os.pathsep.join([str(tmp_path), str(ROOT)])

    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)

    needs = "needs pyspark, which is not installed; in the clone of Blueque: pip install '.[spark]'"
    assert (done.stdout, done.stderr) == (f"blueque.spark.session {needs}\n", "")


def test_with_an_older_pyspark_blueque_spark_says_which_one_it_needs_and_not_to_install_another(
    tmp_path,
):
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.3.4'")
    (tmp_path / "pyspark" / "sql" / "__init__.py").touch()
    (tmp_path / "pyspark-3.3.4.dist-info").mkdir()
    (tmp_path / "pyspark-3.3.4.dist-info" / "METADATA").write_text(
        "Name: pyspark\nVersion: 3.3.4\n"
    )
    code = (
        "import blueque, blueque.spark as bs\n"
        "try: bs.read\n"
        "except blueque.NotInstalled as error: print(error.oldest, error.installed, error)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)

    assert done.stdout.startswith(
        "3.5 3.3.4 blueque.spark.read needs pyspark 3.5 or newer, and pyspark 3.3.4 is installed. "
    ), done.stderr
    assert "pip install" not in done.stdout


def test_the_oldest_pyspark_is_that_of_the_package():
    spark = importlib.import_module("blueque.spark")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert f"pyspark>={spark.OLDEST_PYSPARK},<5" in extras["spark"]
