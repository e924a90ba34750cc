"""The two kinds of handler that a task process runs: a Python callable and any program."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.errors import BluequeError, InvalidInput, InvalidType, TooLarge
from blueque.model import trace
from blueque.model.encoding import encode, printable, quick_json
from blueque.model.outcomes import Outcome
from blueque.model.units import require_callable_name
from blueque.spool import checkpoint
from blueque.spool.attempt import Attempt
from blueque.spool.outcome_record import MAX_ERROR, Record, record_of_exit
from blueque.system import plain_files
from blueque.task_process import stack_dump
from blueque.task_process.import_ahead import import_for_coroutines, import_for_handler
from blueque.task_process.running_task import RunningTask

if TYPE_CHECKING:
    from blueque.model.converter import Converter
    from blueque.task_process.registered import QueueHandler

Handler = Callable[[RunningTask], Any]  # takes the task, returns the result

_NOT_RUN = (types.GeneratorType, types.AsyncGeneratorType)
_COROUTINE = 0x80  # inspect.CO_COROUTINE
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_RETURN = "a handler runs to its end and returns the result"


class Work(NamedTuple):
    """How a task of one queue is run.

    run: runs the task and returns its exit record.
    prepare: does what can be done before there is a task, such as importing; may raise anything.
    after: called when the exit record is written; never raises.
    """

    run: Callable[[RunningTask, Attempt], Record]
    prepare: Callable[[], object] | None = None
    after: Callable[[RunningTask, Record], object] | None = None


def handler(
    get: Callable[[], Handler],
    max_bytes: int,
    show_stacks: Callable[[], object] = stack_dump.register,
) -> Work:
    """Run a Python callable.

    get: returns the callable; called in the task process only, so no user code runs in a listener.
    show_stacks: called before each task, see stack_dump.py.
    """
    # For the next task: the callable, and what it is if it has registered itself.
    prepared: list[tuple[Handler, QueueHandler[Any, Any] | None]] = []

    def prepare() -> None:
        found = get()
        own = _registered(found)
        if own is not None:
            own.types  # noqa: B018
        prepared[:] = [(found, own)]
        import_for_handler()
        code = getattr(found if own is None else own.function, "__code__", None)
        if getattr(code, "co_flags", 0) & _COROUTINE:
            import_for_coroutines()

    # `blueque stack` looks for this name
    def work(task: RunningTask, attempt: Attempt) -> Record:
        found, own = prepared.pop()
        if own is None:
            result = found(task)
        else:
            try:
                arguments = own.arguments(task)
            except InvalidType as refusal:
                return {**_failed("InvalidType", str(refusal)), "retry": "never"}
            result = own.function(*arguments)
        if hasattr(type(result), "__await__"):  # of a coroutine function
            from blueque.task_process import coroutine  # here: it imports asyncio

            result = coroutine.run(result, task)
        converter = None if own is None else own.types.result
        return _record(result, converter, task, attempt, max_bytes)

    def run(task: RunningTask, attempt: Attempt) -> Record:
        if not prepared:
            prepare()
        show_stacks()
        return work(task, attempt)

    return Work(run, prepare)


def _record(
    result: Any, converter: Converter | None, task: RunningTask, attempt: Attempt, max_bytes: int
) -> Record:
    """Return the exit record of a handler that has returned."""
    if isinstance(result, _NOT_RUN):
        kind = type(result).__name__
        error = f"the handler returned a {kind}, which has not run to its end: {_RETURN}"
        return _failed("result", error)
    new: dict[str, Any] = {}
    value = result.result if isinstance(result, Outcome) else result
    try:
        if isinstance(result, Outcome):
            new = {"then": result.records(task.id)}
        plain = value if converter is None else converter.to_json(value, "the result")
        text, encoding = encode(plain, "the result", max_bytes)
        if new:
            _require_room({"result": text, **new}, 2 * max_bytes)
    except InvalidInput as refusal:
        from blueque.spool import refused_value  # here: most results can be stored

        where = refused_value.keep(attempt.path, "result", value)
        return _failed("result", f"{refusal}{where}")
    return {"status": "complete", "result": text, "result_encoding": encoding, **new}


def _failed(error_type: str, error: str) -> Record:
    return {"status": "failed", "error": printable(error, MAX_ERROR), "error_type": error_type}


def _require_room(record: Record, limit: int) -> None:
    """Refuse new tasks that may not fit into the disk space that is set aside for an exit record.

    Raises InvalidInput.
    """
    size = sum(len(part.encode("utf-8", "backslashreplace")) for part in quick_json()(record, 0))
    if size > limit:
        raise InvalidInput(
            f"the result and the new tasks take {size:,} bytes together, and may take {limit:,}; make "
            'them before with task.spawn_many, each with after=task.id and broken="cancel"'
        )


def resolve(name: str, load: Callable[[str], Any] = importlib.import_module) -> Handler:
    """Return the callable that `package.module:callable` names.

    load: imports a module. Raises InvalidInput, and whatever the import raises.
    """
    module_name, _, path = require_callable_name(name).partition(":")
    found: Any = load(module_name)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise InvalidInput(f"{module_name} has no {path!r}") from error
    if not callable(found):
        raise InvalidInput(f"{name} is of the type {type(found).__name__}, not a callable")
    handler: Handler = found
    return handler


def search_first(paths: Sequence[str]) -> None:
    """Have Python search these directories first for modules, here and in the programs that we start."""
    if paths:
        sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
        os.environ["PYTHONPATH"] = python_path(paths)


def python_path(paths: Sequence[str]) -> str:
    """Return PYTHONPATH with these directories before the others."""
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*paths, *(path for path in others if path and path not in paths)])


def _registered(handler: object) -> QueueHandler[Any, Any] | None:
    """Return the handler if it comes from `blueque.handler`, else None."""
    module = sys.modules.get("blueque.task_process.registered")  # else no handler has
    return handler if module is not None and isinstance(handler, module.QueueHandler) else None


def unfit(handler: Any) -> str | None:
    """Return why the object cannot be a handler, to follow its name in a message; None if it can.

    Imports `inspect`: call it in a child of the listener, once.
    """
    import inspect  # here: every fork copies what the listener has imported

    arguments, what = [None], "the task alone"
    if (own := _registered(handler)) is not None:
        handler = own.function
        if own.takes_parameters:
            arguments, what = [None, None], "the task and its parameters"
        try:
            own.types  # noqa: B018
        except BluequeError as error:
            return f"cannot be used: {error}"
    if not callable(handler):
        return "cannot be called"
    if isinstance(handler, type):
        return "is a class: give a function, or an instance that has __call__"
    for call in (handler, type(handler).__call__):
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            return f"is a generator function (it has a yield): {_RETURN}"
    try:
        signature = inspect.signature(handler, follow_wrapped=False)
    except (ValueError, TypeError):  # a builtin without a signature
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        return f"takes ({names}) and cannot be called with {what}: {error}"
    return None


def place_of(error: BaseException) -> str:
    """Return where in the user's code an import failed."""
    import traceback  # here: every fork copies what the listener has imported

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _is_library(path: str) -> bool:
    """Return whether a file is part of Blueque or of Python itself. Installed packages are not."""
    if path.startswith(("<frozen ", _PACKAGE)):
        return True
    return path.startswith(_LIBRARY) and "-packages" + os.sep not in path


def program(
    command: list[str], max_bytes: int, environ: Mapping[str, str] = MappingProxyType({})
) -> Work:
    """Run a program without a shell: parameters on its standard input, its exit code as the outcome.

    environ: variables to add to those of this process.
    """

    def work(task: RunningTask, attempt: Attempt) -> Record:
        stopping = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
        for number in stopping:
            # they are for the program; this process writes the exit record
            signal.signal(number, signal.SIG_IGN)
        stack_dump.unregister()  # of the process that waits for the program
        parameters = attempt.write_parameters(task.fields.get("parameters", ""))
        os.makedirs(f"{attempt.path}/{checkpoint.DIRECTORY}", mode=0o700, exist_ok=True)
        try:
            pid = os.posix_spawnp(
                command[0],
                command,
                {**os.environ, **environ, **trace.variables(task.context)},
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, parameters, os.O_RDONLY, 0)],
                setsigdef=[*stopping, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ],
            )
        except OSError as error:
            return _failed("exit", f"cannot run {command[0]}: {error.strerror}")
        # the program is not reaped yet, so its pid is not reused
        signal.signal(signal.SIGUSR1, lambda *_: os.kill(pid, signal.SIGUSR1))
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != 0:
            return record_of_exit(code, attempt)
        return _result_of_program(attempt, max_bytes)

    return Work(work)


def _result_of_program(attempt: Attempt, max_bytes: int) -> Record:
    path = f"{attempt.path}/result"
    if os.path.lexists(path):
        try:
            content = plain_files.head(path, max_bytes + 1, may_be_link=True)
        except OSError as error:
            return _failed("result", f"the file `result` cannot be read: {error.strerror}")
        text, size = content.decode("utf-8", "replace"), max(len(content), os.path.getsize(path))
    else:
        lines = attempt.tail("stdout", max_bytes + 2).rstrip("\r\n").split("\n")
        text = lines[-1].rstrip("\r")
        size = len(text.encode())
        if not text:
            return {"status": "complete", "result": "null", "result_encoding": "json"}
    if size > max_bytes or len(text.encode()) > max_bytes:
        return _failed("result", str(TooLarge("the result", size, max_bytes, is_least=True)))
    return {"status": "complete", "result": text}
