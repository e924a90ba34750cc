"""The trace in the context of a task: taken from the caller's span, read, left out."""

from __future__ import annotations

import json

import pytest
from opentelemetry import trace as api

from blueque.model import labels, trace

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def span(state="", flags=1):
    """Make what another process has sent the current span."""
    context = api.SpanContext(
        0x4BF92F3577B34DA6A3CE929D0E0E4736,
        0xF067AA0BA902B7,
        is_remote=True,
        trace_flags=api.TraceFlags(flags),
        trace_state=api.TraceState.from_header([state]) if state else None,
    )
    return api.use_span(api.NonRecordingSpan(context))


def test_a_caller_without_a_span_has_no_trace(monkeypatch):
    assert trace.of_caller() == {}
    with span():
        monkeypatch.delitem(__import__("sys").modules, trace.API)
        assert trace.of_caller() == {}


@pytest.mark.parametrize("flags", [0, 1])
def test_the_trace_is_that_of_the_current_span_also_if_it_is_not_sampled(flags):
    with span(flags=flags):
        assert trace.of_caller() == {"traceparent": f"{PARENT[:-2]}0{flags}"}
    with span("vendor=1,other=a"):
        found = trace.of_caller()
    assert found == {"traceparent": PARENT, "tracestate": "vendor=1,other=a"}
    assert trace.of_context(found) == found


@pytest.mark.parametrize(
    "context",
    [
        None,
        {},
        {"traceparent": 5},
        {"traceparent": None, "tracestate": "a=1"},
        {"traceparent": "00-4bf9-00f0-01"},
        {"traceparent": f"ff{PARENT[2:]}"},
        {"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"},
        {"traceparent": f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01"},
        {"traceparent": PARENT + "\n"},
        {"traceparent": PARENT + "-\0"},
    ],
    ids=repr,
)
def test_a_malformed_trace_is_none(context):
    assert trace.of_context(context) == {}


def test_a_malformed_state_is_left_out():
    for state in (5, "", "a=\0", "a=ä"):
        assert trace.of_context({"traceparent": PARENT, "tracestate": state}) == {
            "traceparent": PARENT
        }


def test_a_trace_that_has_no_room_is_left_out():
    given = {"n": "x" * (labels.MAX_CONTEXT - 20)}
    found = labels.fields(context=given, trace={"traceparent": PARENT})
    assert json.loads(found["context"]) == given


def test_a_context_without_its_trace_is_as_it_was():
    assert trace.without('{"n":1}') == '{"n":1}'
    assert trace.without(json.dumps({"traceparent": PARENT, "tracestate": "a=1"})) == ""
    assert json.loads(trace.without(json.dumps({"n": 1, "traceparent": PARENT}))) == {"n": 1}
