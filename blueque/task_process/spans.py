"""The OpenTelemetry span of an attempt, for handlers that use OpenTelemetry.

A process that has not imported it exports no spans, so nothing here imports it first. What goes wrong
with a span is printed to the log of the task, and changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from blueque.model import trace
from blueque.spool.outcome_record import Record, record_of
from blueque.task_process.running_task import RunningTask
from blueque.version import __version__

FLUSH = 5.0  # seconds that a task process waits at most for its spans to be exported


def traced(task: RunningTask, run: Callable[[], Record]) -> Record:
    """Run a handler, in a span of the attempt if the process has imported OpenTelemetry."""
    api: Any = sys.modules.get(trace.API)
    span = None if api is None else _guarded(lambda: _begin(api, task))
    if span is None:
        return run()
    pid = os.getpid()
    quiet = {"record_exception": False, "set_status_on_exception": False}
    with api.use_span(span, end_on_exit=False, **quiet):
        try:
            record = run()
        except BaseException as error:
            raised = error
            if os.getpid() == pid:
                # to be handed back is no failure, whether or not the task was asked to stop
                _guarded(lambda: _end(api, span, record_of(raised, True), raised))
            raise
    if os.getpid() == pid:  # else a child that the task forked has returned here
        _guarded(lambda: _end(api, span, record))
    return record


def flush() -> None:
    """Export the spans of this process, which ends without doing so by itself. Takes 5 s at most."""
    api: Any = sys.modules.get(trace.API)
    if api is not None:
        _guarded(lambda: _export(getattr(api.get_tracer_provider(), "force_flush", None)))


def variables(task: RunningTask) -> dict[str, str]:
    """Return the variables by which a program finds its trace: that of the attempt, or else that of its producer."""
    found = trace.of_caller() or trace.of_context(task.context)
    return {name.upper(): value for name, value in found.items()}


def _begin(api: Any, task: RunningTask) -> Any:
    """Start a span after the semantic conventions for messaging, with a link to that of the producer."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found = TraceContextTextMapPropagator().extract(trace.of_context(task.context))
    producer = api.get_current_span(found).get_span_context()
    node = task.node or ""
    attributes = {
        "messaging.system": "blueque",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": task.queue or "",
        "messaging.message.id": task.id,
        "messaging.client.id": node,
        "host.name": node.rpartition("_")[0],
        "blueque.attempt": task.attempt or 1,
    }
    return api.get_tracer("blueque", __version__).start_span(
        f"process {task.queue}",
        kind=api.SpanKind.CONSUMER,
        attributes=attributes,
        links=[api.Link(producer)] if producer.is_valid else [],
    )


def _end(api: Any, span: Any, record: Record, error: BaseException | None = None) -> None:
    """End the span. One that is handed back, or is to run later, has not failed."""
    if record["status"] == "failed" and not {"handed_back", "retry_after"} & record.keys():
        if error is not None:
            span.record_exception(error)
        span.set_attribute("error.type", str(record.get("error_type")))
        span.set_status(api.Status(api.StatusCode.ERROR, str(record.get("error"))))
    span.end()


def _export(force_flush: Callable[[int], object] | None) -> None:
    """Call it in another thread: it may disregard the time that it is given."""
    if force_flush is None:  # the program has set no provider that exports spans
        return
    import threading  # here: OpenTelemetry has imported it

    thread = threading.Thread(target=force_flush, args=(int(1000 * FLUSH),), daemon=True)
    thread.start()
    thread.join(FLUSH)
    if thread.is_alive():
        print(f"-- blueque: spans were not exported within {FLUSH:g} s --", file=sys.stderr)


def _guarded(call: Callable[[], Any]) -> Any:
    """Return what the call returns; None if it raises."""
    try:
        return call()
    except Exception as error:
        try:
            print(f"-- blueque: OpenTelemetry: {type(error).__name__}: {error} --", file=sys.stderr)
        except Exception:  # the task has closed it, or the error cannot be shown
            pass
    return None
