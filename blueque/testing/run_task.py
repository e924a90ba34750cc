"""run_task: run a handler in this process, without Redis, and return how it ended."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, Unpack, overload

from blueque.errors import InvalidInput
from blueque.model import limits as task_limits
from blueque.model import units
from blueque.model.converter import Types
from blueque.model.encoding import encode, encode_json
from blueque.model.ids import random_id
from blueque.model.labels import require_context
from blueque.model.options import require_known, require_retry
from blueque.model.retry import Retry
from blueque.model.task import Task
from blueque.model.task_id import TaskId
from blueque.spool import checkpoint
from blueque.spool.attempt import Attempt
from blueque.spool.outcome_record import Record
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.task_process.handlers import Handler, unfit
from blueque.task_process.registered import P, QueueHandler, R
from blueque.task_process.running_task import RunningTask
from blueque.testing.ended import Ended
from blueque.testing.simulated_task import SimulatedTask, ended_of, run_attempt
from blueque.testing.time_limits import TimeLimits

LIMITS = ("time_limit", "stall_limit", "lead")  # that are simulated


class Circumstances(TypedDict, total=False):
    """The keyword arguments of `run_task`."""

    queue: str
    before: Ended | None
    stop_after: int | None
    checkpoint: Any
    files: Mapping[str, bytes]
    inputs: Mapping[str, Any]
    resources: Mapping[str, list[int] | int]
    context: Mapping[str, Any]
    retry: Retry | int | None
    time_limit: float | str | None
    stall_limit: float | str | None
    lead: float | str | None
    fields: Mapping[str, str]
    max_bytes: int


class Untyped(Protocol):
    """Any callable but a `blueque.handler`: for type checkers, that one lets no attribute be set."""

    def __call__(self, task: RunningTask, /) -> Any: ...
    def __setattr__(self, name: str, value: object, /) -> None: ...


@overload
def run_task(
    handler: QueueHandler[P, R], parameters: P = ..., **circumstances: Unpack[Circumstances]
) -> Ended[R]: ...


@overload
def run_task(
    handler: Untyped, parameters: Any = None, **circumstances: Unpack[Circumstances]
) -> Ended: ...


def run_task(
    handler: Handler, parameters: Any = None, **circumstances: Unpack[Circumstances]
) -> Ended:
    """Run a handler in this process, without Redis, and return how it ended.

    A handler that uses `task.client`, or `enqueue` of a `blueque.handler` without `client=`, gets
    InvalidInput: test it with `drain`.
    handler: a function, a coroutine function or a `blueque.handler`. Queue, policy and limits of a
        `blueque.handler` apply unless given here.
    parameters: as for `Queue.enqueue`, or `QueueHandler.enqueue`. The handler gets them as they
        come back from Redis.
    before: the previous attempt. It sets the number of the attempt, its checkpoint and its files.
    stop_after: how many times `task.should_stop` is false before it becomes true; None: it stays false.
    checkpoint, files: what an earlier attempt has left: the value, and the content of each file by
        its path in `task.checkpoint_dir`.
    inputs: the results in `task.inputs`, by task id.
    resources: `task.resources`, such as {"gpu": [0]}.
    context: `task.context`.
    retry: the policy of the task.
    time_limit, stall_limit, lead: as for `Queue.enqueue`. In the main thread, a limit interrupts
        the handler with an exception; in another thread, it is checked at the end only.
        memory_limit is not simulated.
    fields: further fields of the task, as text, such as {"key": "42"}.
    max_bytes: the size limit of parameters, result and checkpoint.
    An exception of the handler is in the result; other kinds, such as KeyboardInterrupt, pass through.
    Raises InvalidInput for an unusable handler or parameters.
    """
    require_known("run_task", circumstances, Circumstances)
    if (why := unfit(handler)) is not None:
        raise InvalidInput(f"run_task: {getattr(handler, '__name__', repr(handler))} {why}")
    with tempfile.TemporaryDirectory(prefix="blueque-test-") as root:
        given: dict[str, Any] = {**settings_of(handler), **circumstances}
        return _run(handler, parameters, Path(root), **given)


def _run(
    handler: Handler,
    parameters: Any,
    root: Path,
    *,
    queue: str = "test",
    before: Ended | None = None,
    stop_after: int | None = None,
    max_bytes: int = units.DEFAULT_MAX_BYTES,
    retry: Retry | int | None = None,
    resources: Mapping[str, list[int] | int] | None = None,
    **others: Any,
) -> Ended:
    types = handler.types if isinstance(handler, QueueHandler) else Types()
    if types.parameters is not None:
        parameters = types.parameters.to_json(parameters, "parameters")
    limits, text = _limits_of(others), encode(parameters, "parameters", max_bytes)
    fields = _fields(queue, text, before, others)
    spool = Spool(str(root), max_bytes)
    task_id = before.id if before else random_id()
    attempt = spool.create(task_id, int(fields["attempt"]), fields)
    _give(attempt, before, others, max_bytes)
    timing = TimeLimits(limits)
    task = SimulatedTask(task_id, fields, attempt, resources or {}, max_bytes, timing, stop_after)
    run = run_attempt(handler, task, attempt, timing, max_bytes)
    failures = task.failures or 0
    outcome, delay = _outcome(run.record, require_retry(retry), failures)
    is_failure = outcome == "retried" and "retry_after" not in run.record
    result = Task(TaskId(task_id, converter=types.result), run.record).result
    return ended_of(task, run, attempt, outcome, result, delay, failures + is_failure)


def settings_of(handler: Handler) -> dict[str, Any]:
    """Return the settings of a handler that was made with `blueque.handler`."""
    if not isinstance(handler, QueueHandler):
        return {}
    known = {name: handler.settings.limits.get(name) for name in LIMITS}
    return {"queue": handler.queue, "retry": handler.settings.retry, **known}


def _limits_of(given: Mapping[str, Any]) -> task_limits.Limits:
    fields = task_limits.fields(**{name: given.get(name) for name in LIMITS})
    texts = {name: str(value) for name, value in fields.items()}
    return task_limits.of(texts, task_limits.Limits())


def _fields(
    queue: str, text: tuple[str, str | None], before: Ended | None, given: Mapping[str, Any]
) -> dict[str, str]:
    """Return the fields of the task as a listener would read them at its start."""
    inputs, context = given.get("inputs"), given.get("context")
    now = f"{time.time()}"
    fields = {
        "queue": queue,
        "parameters": text[0],
        "status": "started",
        "node": process.node_id(),
        "pid": f"{os.getpid()}",
        "token": "test",
        "created": now,
        "started": now,
        "updated": now,
        "attempt": f"{before.attempt + 1 if before else 1}",
        **({} if text[1] is None else {"parameters_encoding": text[1]}),
        **({"failures": f"{before.failures}"} if before and before.failures else {}),
        **({} if context is None else {"context": require_context(context)}),
        **({} if inputs is None else {"inputs": "1", "parents": " ".join(inputs)}),
    }
    return fields | dict(given.get("fields") or {})


def _give(attempt: Attempt, before: Ended | None, given: Mapping[str, Any], max_bytes: int) -> None:
    """Write what the attempt finds: the checkpoint of an earlier one, and the results of other tasks."""
    value = given.get("checkpoint", None if before is None else before.checkpoint)
    files = given.get("files", None if before is None else before.files)
    if value is not None:
        checkpoint.write(attempt.path, encode_json(value, "the checkpoint", max_bytes))
    for name, content in (files or {}).items():
        path = Path(attempt.path, checkpoint.DIRECTORY, name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
    if given.get("inputs") is not None:
        attempt.write_inputs(json.dumps(dict(given["inputs"])))


def _outcome(
    record: Record, policy: Retry | Literal[False] | None, failures: int
) -> tuple[str, float | None]:
    """Return how the attempt ended, and in how many seconds it runs again."""
    if record["status"] == "complete":
        return "complete", None
    if record.get("handed_back"):
        return "released", None
    if record.get("retry_after") is not None:
        return "retried", float(record["retry_after"])
    if policy and policy.allows(failures, record):
        return "retried", policy.delay(failures)
    return "failed", None
