"""The trace that a task carries in its context: traceparent and tracestate of W3C Trace Context."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

API = "opentelemetry.trace"  # the module
PARENT, STATE = "traceparent", "tracestate"
_PARENT = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)


def of_caller() -> dict[str, str]:
    """Return the trace of the current OpenTelemetry span; without a span, nothing.

    A program that has not imported OpenTelemetry has no span. This imports nothing and costs one
    look into a dict.
    """
    # None too while another thread imports it
    current = getattr(sys.modules.get(API), "get_current_span", None)
    if current is None:
        return {}
    span = current().get_span_context()
    if not span.is_valid:
        return {}
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    state = span.trace_state.to_header()
    return {PARENT: parent, STATE: state} if state else {PARENT: parent}


def of_context(context: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the trace in the context of a task; nothing if it is malformed."""
    parent, state = ((context or {}).get(name) for name in (PARENT, STATE))
    if not isinstance(parent, str) or not _PARENT.fullmatch(parent) or not parent.isprintable():
        return {}
    if not isinstance(state, str) or not state or not state.isascii() or not state.isprintable():
        return {PARENT: parent}
    return {PARENT: parent, STATE: state}


def variables(context: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the environment variables by which a program that a task runs finds its trace.

    It is that of the current span, as a hook may have begun one, or else that of the producer.
    """
    found = of_caller() or of_context(context)
    return {name.upper(): value for name, value in found.items()}


def without(context: str) -> str:
    """Return a context, as a JSON object, without its trace; empty if nothing is left."""
    if PARENT not in context:
        return context
    found = {
        name: value for name, value in json.loads(context).items() if name not in (PARENT, STATE)
    }
    return json.dumps(found) if found else ""
