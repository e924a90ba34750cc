"""Mistakes of one line, drawn at random, in a copy of the package: which tests notice them?

    python tests/machinery/mistakes.py --count 10 --seed 1 blueque/protocol tests/protocol \
        --then tests/guards/test_document.py tests/machinery/test_explorer.py

The first argument is the module or the room that gets the mistakes, those after it are its tests. Of
these run the ones that call the function with the mistake, themselves or in a program. If none of them notices, those after `--then`
run in the same way. `--all` runs all of them for each mistake, and names each test that notices, which
says what a test alone is good for. Compare the same seed before and after a change of tests.

`mutants.py` is for guards of the protocol, which the explorer or a test has to notice.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import copy
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SECONDS = 300.0  # for the tests of one mistake: it may make one wait for ever
TURNED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SAID = re.compile(r"^(log\.|warnings\.|click\.)")  # what a person reads is not drawn


class Mistake(NamedTuple):
    """One line of a file, as it was and as it is to be; `function` is the outermost around it."""

    file: str
    line: int
    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.before.strip()}  ->  {self.after.strip()}"


# The mistakes


def mistakes_in(file: Path) -> list[Mistake]:
    """Return each mistake that can be made in the functions of a file."""
    text = file.read_text()
    lines, name = text.splitlines(), file.relative_to(ROOT).as_posix()
    found = []
    for function, node in _functions(ast.parse(text)):
        for part in _parts(node):
            if part.lineno != part.end_lineno:
                continue
            before = lines[part.lineno - 1]
            raw = before.encode()
            head, tail = raw[: part.col_offset].decode(), raw[part.end_col_offset :].decode()
            for changed in _changed(part):
                after = f"{head}{changed}{tail}"
                if after != before:
                    found.append(Mistake(name, part.lineno, function, before, after))
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                yield each.name, each


def _parts(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield what stands in a function, without its head, and without what a person reads."""
    for child in node.body if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise | ast.JoinedStr):
            continue
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.Expr) and SAID.match(ast.unparse(child)):
            continue
        if isinstance(child, ast.AnnAssign):
            child = child.value or child.target
        if isinstance(child, ast.expr | ast.stmt):
            yield child
        yield from _parts(child)


def _changed(part: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield the texts of what could stand there by mistake."""
    match part:
        case ast.Compare(ops=[op]) if type(op) in TURNED:
            yield _with(part, ops=[TURNED[type(op)]()])
        case ast.BoolOp():
            yield _with(part, op=ast.Or() if isinstance(part.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield f"({ast.unparse(part.operand)})"
        case ast.IfExp():
            yield _with(part, body=part.orelse, orelse=part.body)
        case ast.Constant(value=bool()):
            yield str(not part.value)
        case ast.Constant(value=int() | float()):
            yield str(part.value + 1)
        case ast.Constant(value=str()) if re.fullmatch(r"\w+", part.value):
            yield repr(f"{part.value}_")
        case ast.Call(args=[first, second, *rest]) if not isinstance(first, ast.Starred):
            yield _with(part, args=[second, first, *rest])
        case ast.Expr() | ast.AugAssign():
            yield "pass"
        case ast.Return(value=ast.expr()):
            yield "return None"


def _with(part: ast.expr, **fields: object) -> str:
    changed = copy.copy(part)
    for name, value in fields.items():
        setattr(changed, name, value)
    return f"({ast.unparse(changed)})"


def drawn(where: Sequence[Path], count: int, seed: int) -> list[Mistake]:
    """Return so many mistakes in these files, at most one a line."""
    files = [file for each in where for file in (sorted(each.rglob("*.py")) or [each])]
    every = [mistake for file in files for mistake in mistakes_in(file)]
    random.Random(seed).shuffle(every)
    a_line = {(mistake.file, mistake.line): mistake for mistake in every}
    return list(a_line.values())[:count]


# The tests


class Copy:
    """A copy of the repository, whose tests run with its own package."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "repository"
        left_out = shutil.ignore_patterns(".*", "__pycache__", "node_modules")
        shutil.copytree(ROOT, self.root, ignore=left_out, symlinks=True)
        compileall.compile_dir(self.root / "blueque", quiet=1)

    def calls(self, tests: Sequence[str]) -> dict[str, set[str]]:
        """Run tests, and return the functions that each of them calls: itself, or in a program that
        it starts. Tests that fail are named, and left out.
        """
        machinery = str(self.root / "tests/machinery")
        trace = f"import sys; sys.path.insert(0, {machinery!r}); import traced; del sys.path[0]\n"
        (self.root / "number_of_test").write_bytes(bytes(4))
        (self.root / "calls").write_bytes(b"")
        told = self.root / "calls.json"
        with (
            _longer(self.root / "sitecustomize.py", trace),
            _longer(self.root / "tests/patched/sitecustomize.py", trace),
        ):
            said = self._pytest([*tests, "-p", "called"], None, TOLD=str(told))[1]
        assert told.exists(), said
        found = json.loads(told.read_text())
        for test in (test for test, called in found.items() if called is None):
            print("FAILS WITHOUT A MISTAKE", test, flush=True)
        return {test: set(called) for test, called in found.items() if called is not None}

    def noticed(self, mistake: Mistake, tests: Sequence[str], is_first: bool) -> list[str]:
        """Return the tests that fail with a mistake; is_first: only the first one."""
        file = self.root / mistake.file
        text = file.read_text()
        lines = text.splitlines(keepends=True)
        lines[mistake.line - 1] = mistake.after + "\n"
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()
        file.write_text("".join(lines))
        try:
            (self.root / "chosen").write_text("".join(f"{test}\n" for test in tests))
            code, said = self._pytest(["@chosen", *(["-x"] if is_first else [])])
        finally:
            file.write_text(text)
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)(?: - |$)", said, re.MULTILINE)
        return failed or ([f"all, with exit code {code}"] if code else [])

    def _pytest(
        self, arguments: Sequence[str], seconds: float | None = SECONDS, **environ: str
    ) -> tuple[int, str]:
        paths = os.pathsep.join(map(str, (self.root, self.root / "tests/machinery")))
        environ = {**os.environ, **environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *arguments],
            cwd=self.root,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self._end_programs()
            process.communicate()
            return -1, ""
        return process.returncode, said

    def _end_programs(self) -> None:
        """End what tests that were killed have left: each has the copy in its environment."""
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{self.root}".encode() in (directory / "environ").read_bytes():
                    os.kill(int(directory.name), signal.SIGKILL)


@contextlib.contextmanager
def _longer(file: Path, text: str) -> Iterator[None]:
    """Have the text at the end of the file, which need not be there."""
    before = file.read_text() if file.exists() else ""
    file.write_text(before + text)
    yield
    file.write_text(before)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("where", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--then", nargs="+", default=[])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    unnoticed = 0
    with tempfile.TemporaryDirectory() as directory:
        repository = Copy(Path(directory))
        stages = [repository.calls(tests) for tests in (given.tests, given.then) if tests]
        for mistake in drawn([given.where.resolve()], given.count, given.seed):
            noticed: list[str] = []
            called = f"{mistake.file}:{mistake.function}"
            for stage in stages:
                tests = [test for test, calls in stage.items() if called in calls]
                if tests and (given.all or not noticed):
                    noticed += repository.noticed(mistake, tests, not given.all)
            unnoticed += not noticed
            print("noticed" if noticed else "NOT NOTICED", mistake, flush=True)
            print("".join(f"    {test}\n" for test in noticed), end="", flush=True)
    print(f"{given.count - unnoticed} of {given.count} noticed, seed {given.seed}")
    return unnoticed


if __name__ == "__main__":
    sys.exit(main())
