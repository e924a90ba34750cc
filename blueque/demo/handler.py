"""The handlers of the demo, which `blueque dev` finds here. Task processes import this module, so it
stays small.
"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from typing import Any

from blueque.task_process.registered import handler
from blueque.task_process.running_task import RunningTask

QUEUE = "stdlib"
PIPELINE_QUEUE = "packages"  # of the second part, pipeline.py


@handler(QUEUE)
def of_demo(task: RunningTask) -> dict[str, Any]:
    """Measure a package for the first part."""
    return measure(task)


@handler(PIPELINE_QUEUE)
def of_pipeline(task: RunningTask) -> dict[str, Any]:
    """Measure a package for the second part."""
    return measure(task)


def measure(task: RunningTask) -> dict[str, Any]:
    """Parse the Python files at `path`, a directory or one file, and return counts of their contents."""
    path = Path(task.parameters["path"])
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    counts = {
        "files": len(files),
        "lines": 0,
        "functions": 0,
        "classes": 0,
        "deepest": 0,
        "unreadable": 0,
    }
    warnings.simplefilter("ignore")  # a test suite has code that causes warnings on purpose
    for file in task.track(files, unit="files"):
        source = file.read_bytes()
        lines = len(source.splitlines())
        counts["lines"] += lines
        print(f"{file.name}: {lines} lines")
        try:
            tree = ast.parse(source, str(file))
        except (SyntaxError, ValueError):
            if len(files) == 1:
                raise
            counts["unreadable"] += 1  # and some of its files are invalid on purpose
            continue
        functions, classes, deepest = shape(tree)
        counts["functions"] += functions
        counts["classes"] += classes
        counts["deepest"] = max(counts["deepest"], deepest)
    return {"package": task.parameters["package"], **counts}


def shape(tree: ast.Module) -> tuple[int, int, int]:
    """Return how many functions and classes there are, and how deep the nesting is."""
    functions = classes = deepest = 0
    unseen: list[tuple[ast.AST, int]] = [(tree, 0)]  # nodes, and how deep each is nested
    while unseen:
        node, depth = unseen.pop()
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        classes += isinstance(node, ast.ClassDef)
        # An except clause is beside its try, not inside.
        if isinstance(node, ast.Match) or (
            hasattr(node, "body") and not isinstance(node, ast.Module | ast.ExceptHandler)
        ):
            depth += 1
            deepest = max(deepest, depth)
        # Only statements contain statements: expressions, most of the tree, are skipped.
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            for inner in getattr(node, name, ()):
                unseen.append((inner, depth - _is_elif(node, name, inner)))
    return functions, classes, deepest


def _is_elif(node: ast.AST, name: str, inner: ast.AST) -> bool:
    """Return whether `inner` is an elif of `node`, which looks like an if in its else."""
    return (
        name == "orelse"
        and isinstance(node, ast.If)
        and isinstance(inner, ast.If)
        and inner.col_offset == node.col_offset
    )
