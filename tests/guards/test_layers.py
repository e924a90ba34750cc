"""The rooms of the package: imports point one way, and what belongs in one room stays there.

A new module lies in one of the rooms. A new room is added to ROOMS, with a docstring in its
__init__.py.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeGuard

import pytest

PACKAGE = Path(__file__).parents[2] / "blueque"

# The rooms, from the bottom: each imports from itself and from those above it in this list.
# docs/architecture.md says what they are for, and so does the docstring of each.
ROOMS = (
    "errors",
    "version",
    "model",
    "text",
    "system",
    "connection",
    "settings",
    "spool",
    "protocol",
    "queries",
    "tables",
    "producer",
    "backlog",
    "listener",
    "recovery",
    "audit",
    "sentences",
    "metrics",
    "client",
    "async_queue",
    "async_client",
    "documents",
    "faces",
    "task_process",
    "node",
    "feeder",
    "scheduler",
    "report",
    "archives",
    "spark",
    "web",
    "dev",
    "cli",
    "testing",
    "demo",
    "__main__",
    "",  # blueque/__init__.py; nothing inside imports from it
)
PROGRAMS = (
    "task_process",
    "node",
    "scheduler",
    "feeder",
    "report",
    "spark",
    "metrics",
    "testing",
    "demo",
    "dev",
)
MAY_CHANGE_REDIS = ("protocol",)
# The demo prints what a person may ask redis-cli.
MAY_READ_REDIS = ("protocol", "queries", "tables", "audit", "metrics", "connection", "demo")
IMPORT_REDIS_PY = ("client", "connection.redis_py", "task_process.import_ahead")
MAY_HANDLE_PROCESSES = ("system", *PROGRAMS)

CHANGES = {
    "APPEND",
    "BLMOVE",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZPOPMAX",
    "BZPOPMIN",
    "COPY",
    "DEL",
    "EXPIRE",
    "FLUSHALL",
    "FLUSHDB",
    "GETDEL",
    "GETSET",
    "HDEL",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HMSET",
    "HSET",
    "HSETNX",
    "INCR",
    "INCRBY",
    "LINSERT",
    "LMOVE",
    "LPOP",
    "LPUSH",
    "LPUSHX",
    "LREM",
    "LSET",
    "LTRIM",
    "MSET",
    "PERSIST",
    "PEXPIRE",
    "PUBLISH",
    "RENAME",
    "RPOP",
    "RPOPLPUSH",
    "RPUSH",
    "RPUSHX",
    "SADD",
    "SET",
    "SETEX",
    "SETNX",
    "SMOVE",
    "SPOP",
    "SREM",
    "UNLINK",
    "XADD",
    "ZADD",
    "ZINCRBY",
    "ZPOPMAX",
    "ZPOPMIN",
    "ZREM",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
}
LOOKS = {
    "DISCARD",
    "EXEC",
    "EXISTS",
    "GET",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HSTRLEN",
    "HVALS",
    "LINDEX",
    "LLEN",
    "LPOS",
    "LRANGE",
    "MGET",
    "MULTI",
    "SCARD",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "SRANDMEMBER",
    "SUBSCRIBE",
    "TTL",
    "UNWATCH",
    "WATCH",
    "XLEN",
    "XRANGE",
    "XREAD",
    "XREVRANGE",
    "ZCARD",
    "ZCOUNT",
    "ZMSCORE",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREVRANGE",
    "ZREVRANGEBYSCORE",
    "ZSCORE",
}
LUA = {"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT", "FCALL", "FCALL_RO", "FUNCTION"}
SWEEPING = {"KEYS", "SCAN"}
METHODS = {"eval", "evalsha", "script_load", "register_script", "scan", "scan_iter"}

PROCESS_CALLS = {
    "fork",
    "forkpty",
    "kill",
    "killpg",
    "pidfd_open",
    "posix_spawn",
    "posix_spawnp",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
}


@dataclass(frozen=True)
class Module:
    name: str  # dotted, without the package
    path: Path

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


@functools.cache
def modules() -> dict[str, Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def room(name: str) -> str:
    return name.partition(".")[0]


def position(name: str) -> int:
    assert room(name) in ROOMS, (
        f"blueque/{name.replace('.', '/')} is in no room: move it into one of {', '.join(ROOMS)}"
    )
    return ROOMS.index(room(name))


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """Yield the modules of ours that a module imports, with line numbers; "" for a name taken from
    the package itself.
    """
    yield from imports_of(module.nodes, module.path)


def imports_of(nodes: Iterable[ast.AST], path: Path) -> Iterator[tuple[str, int]]:
    """Yield the same for some nodes of the module at this path."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the import out in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == "blueque":
                yield nearest_module(name), node.lineno


def nearest_module(name: str) -> str:
    """Return the module that `blueque.a.b` names or is a name in."""
    inner = name.partition(".")[2]
    while inner and inner not in modules():
        inner = inner.rpartition(".")[0]
    return inner


def strings(module: Module) -> Iterator[ast.Constant]:
    """Yield every string but the docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in module.nodes
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in module.nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node


def sent_commands(module: Module) -> Iterator[tuple[str, int]]:
    """Yield the first word of everything that looks like a Redis command: a tuple or list, or a
    call of redis-py.
    """
    for node in module.nodes:
        first: ast.expr | None = None
        if isinstance(node, ast.Tuple | ast.List) and node.elts:
            first = node.elts[0]
        elif is_method_call(node, {"execute_command", "read", "send"}) and node.args:
            first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value.split(" ")[0], node.lineno


def is_method_call(node: ast.AST, names: Iterable[str]) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
    )


def places(found: Iterable[tuple[Module, int]]) -> list[str]:
    return [f"{module.path.relative_to(PACKAGE.parent)}:{line}" for module, line in found]


def test_every_room_says_what_it_is_for_and_where_to_begin():
    for name, module in modules().items():
        position(name)
        if module.path.name == "__init__.py" and name in ROOMS and name != "":
            docstring = ast.get_docstring(module.tree) or ""
            assert "May import" in docstring and "Begin with" in docstring, module.path


def test_imports_point_to_rooms_above_in_the_list():
    upward = [
        f"{module.path}:{line} imports blueque.{imported}"
        for name, module in modules().items()
        if name != ""
        for imported, line in imports(module)
        if position(imported) > position(name)
    ]
    assert upward == []


def test_a_verb_imports_no_other_verb():
    """What two verbs share lies beside cli/verbs/ or in a room above. The parts of a noun, such as
    host_list of host, are its own.
    """
    verbs = "cli.verbs."
    found = [
        f"{module.path}:{line} imports blueque.{imported}"
        for name, module in modules().items()
        if name.startswith(verbs)
        for imported, line in imports(module)
        if imported.startswith(verbs) and not imported.startswith(f"{name}_")
    ]
    assert found == []


def test_modules_do_not_import_each_other_in_circles():
    graph = {
        name: {imported for imported, _ in imports(module)} - {name}
        for name, module in modules().items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports go in a circle: {' <- '.join(error.args[1])}")


def test_key_names_are_spelled_in_keys_only():
    assert (
        places(
            (module, string.lineno)
            for module in modules().values()
            if module.name != "model.keys"
            for string in strings(module)
            if re.search("blueque_[a-z]", string.value)
        )
        == []
    )


@pytest.mark.parametrize(
    ("allowed", "words"), [(MAY_CHANGE_REDIS, CHANGES), (MAY_READ_REDIS, LOOKS)]
)
def test_redis_commands_are_spelled_where_they_belong_only(allowed, words):
    assert (
        places(
            (module, line)
            for module in modules().values()
            if room(module.name) not in allowed
            for word, line in sent_commands(module)
            if word in words
        )
        == []
    )


def test_no_lua_and_no_sweep_over_all_keys_but_for_an_audit():
    for module in modules().values():
        forbidden = LUA | SWEEPING if module.name != "audit.scan" else LUA
        for word, line in sent_commands(module):
            assert word.upper() not in forbidden, f"{module.path}:{line} sends {word}"
        for node in module.nodes:
            is_sweep = is_method_call(node, {"keys"}) and node.args
            assert not is_sweep and not is_method_call(node, METHODS), (
                f"{module.path}:{node.lineno}: {ast.unparse(node)}"
            )


def test_processes_are_forked_signalled_and_waited_for_in_system_and_the_programs_only():
    def is_use(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return (
                isinstance(node.value, ast.Name)
                and node.value.id == "os"
                and node.attr in PROCESS_CALLS
            )
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            return any(alias.name in PROCESS_CALLS for alias in node.names)
        return bool({"signal", "multiprocessing"} & imported_packages(node))

    assert (
        places(
            (module, node.lineno)  # type: ignore[attr-defined]
            for module in modules().values()
            if room(module.name) not in MAY_HANDLE_PROCESSES
            for node in module.nodes
            if is_use(node)
        )
        == []
    )


def test_redis_py_is_imported_by_client_and_its_connection_only_and_only_when_needed():
    """redis-py takes 125 ms to import, and a listener's forks would copy its memory."""
    found = []
    for module in modules().values():
        lazy = set()
        for node in module.nodes:
            is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            if is_for_types or (
                module.name in IMPORT_REDIS_PY and isinstance(node, ast.FunctionDef)
            ):
                lazy |= {id(inner) for inner in ast.walk(node)}
        for node in module.nodes:
            if "redis" in imported_packages(node) and id(node) not in lazy:
                found.append((module, node.lineno))  # type: ignore[attr-defined]
    assert places(found) == []


def test_pyspark_is_imported_in_blueque_spark_only():
    """The demo's pipeline is written as a user would, and names it for types."""
    assert (
        places(
            (module, node.lineno)  # type: ignore[attr-defined]
            for module in modules().values()
            if room(module.name) != "spark" and module.name != "demo.pipeline"
            for node in module.nodes
            if {"pyspark", "py4j"} & imported_packages(node)
        )
        == []
    )


def imported_packages(node: ast.AST) -> set[str]:
    """Return the top-level packages that an import names."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]}
    return set()
