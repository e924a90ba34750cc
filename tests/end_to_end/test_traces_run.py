"""Traces of OpenTelemetry, from the call that makes a task to the span of its attempt."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest
from opentelemetry.sdk.trace import TracerProvider
from running import ROOT, outcome, until

from blueque import New, Retry
from blueque.producer.large_workflow import digest
from blueque.queries.listing import STATUSES

TRACER = TracerProvider().get_tracer("test")

WORK = """
import os, signal, threading, time
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
import blueque

class ToFile(SpanExporter):
    def export(self, spans):
        with open("spans", "a") as file:
            file.writelines(span.to_json(indent=None) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ToFile(), schedule_delay_millis=3_600_000))
trace.set_tracer_provider(provider)

def run(task):
    current = f"{trace.get_current_span().get_span_context().span_id:016x}"
    match task.parameters:
        case "fail":
            raise ValueError("no such film")
        case "object":
            return object()
        case "exit":
            raise SystemExit(3)
        case "later" if task.attempt == 1:
            raise blueque.RetryLater(0, "not yet")
        case "fork":
            if os.fork() == 0:
                return "the child"
            os.wait()
        case "spawn":
            task.spawn("work", "next", key=1)
            return blueque.Then(current, [blueque.New("work", "last", key=2)])
    return [current, task.context]

async def run_async(task):
    return run(task)
"""


@pytest.fixture
def programs(programs):
    programs.write(WORK)
    return programs


@pytest.fixture
def spans(programs):
    """Return the spans of a task that have been exported, once there are so many."""

    def of(task, number=1):
        path = programs.directory / "spans"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [span for span in map(json.loads, lines) if _task_of(span) == task.id]
        return len(found) >= number and found

    return lambda task, number=1: until(lambda: of(task, number), what="the spans")


def _task_of(span):
    return span["attributes"].get("messaging.message.id")


def header(span):
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def is_trace_of(parent, span):
    """Tell whether traceparent names this exported span."""
    return parent.split("-")[1:3] == [span["context"][name][2:] for name in ("trace_id", "span_id")]


def test_all_that_makes_tasks_hands_on_the_span_of_the_caller(client, queue):
    with TRACER.start_as_current_span("ask") as span:
        queue.schedule(2, time.time() + 3600)
        queue.enqueue(3, after=queue.enqueue(4))
        queue.enqueue_many([5, 6])
        queue.enqueue_many([7], keys=["k"], run="night")
        flow = client.workflow("flow")
        flow.add("work", 8)
        flow.commit()
    tasks = client.get_inspector().listing(["work"], STATUSES, 99).tasks
    assert [client.get_task(task.id).context for task in tasks] == [
        {"traceparent": header(span)}
    ] * 7
    assert client.get_task(queue.enqueue(9)).context is None


def test_a_recurring_schedule_hands_on_no_span(client):
    with TRACER.start_as_current_span("deploy"):
        client.set_schedule("nightly", queue="work", parameters=1, cron="0 3 * * *")
    assert "traceparent" not in json.dumps(client.get_schedule("nightly").record)


def test_a_key_an_id_and_a_workflow_are_the_same_in_another_trace(client, queue):
    found = []
    for name in ("first", "second"):
        with TRACER.start_as_current_span(name) as span:
            found.append((queue.enqueue(1, key="k"), queue.enqueue(2, id="own")))
            workflow = client.workflow("flow")
            workflow.add("work", 3, context={"n": 1})
            workflow.add("work", 4)
            found[-1] += (digest([*workflow._tasks.values()]),)
            if name == "first":
                first = header(span)
    assert found[0] == found[1]
    assert client.get_task(found[0][0]).context == {"traceparent": first}


@pytest.mark.parametrize("options", [(), ("--no-warm",), ("--spawn",), ("--reuse", "5")], ids=repr)
def test_an_attempt_is_a_span_with_a_link_to_its_producer(programs, client, queue, spans, options):
    programs.listener("work:run", *options)
    with TRACER.start_as_current_span("ask") as asked:
        first = outcome(client, queue.enqueue("first"))
        second = outcome(client, queue.enqueue("second"))

    for task in (first, second):
        (span,) = spans(task)
        assert (span["name"], span["kind"]) == ("process work", "SpanKind.CONSUMER")
        assert span["parent_id"] is None and span["status"]["status_code"] == "UNSET"
        assert [f"0x{part}" for part in header(asked).split("-")[1:3]] == [
            span["links"][0]["context"][name] for name in ("trace_id", "span_id")
        ]
        assert span["attributes"] == {
            "messaging.system": "blueque",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "work",
            "messaging.message.id": task.id,
            "messaging.client.id": task.node,
            "host.name": task.node.rpartition("_")[0],
            "blueque.attempt": 1,
        }
        assert task.result == [span["context"]["span_id"][2:], {"traceparent": header(asked)}]


@pytest.mark.parametrize(
    ("parameters", "error", "events"),
    [
        ("fail", ("ValueError", "ValueError: no such film"), ["exception"]),
        ("object", ("result", None), []),
        ("exit", ("exit", "sys.exit(3)"), ["exception"]),
    ],
)
def test_an_attempt_that_fails_has_an_error(
    programs, client, queue, spans, parameters, error, events
):
    programs.listener("work:run")
    task = outcome(client, queue.enqueue(parameters))

    (span,) = spans(task)
    assert task.status == "failed"
    assert span["status"] == {"status_code": "ERROR", "description": error[1] or task.error}
    assert span["attributes"]["error.type"] == error[0] == task.error_type
    assert [event["name"] for event in span["events"]] == events
    assert span["links"] == []


def test_each_attempt_is_a_span_and_one_that_runs_later_has_not_failed(
    programs, client, queue, spans
):
    programs.listener("work:run")
    task = outcome(client, queue.enqueue("later", retry=Retry(max=1)))

    seen = spans(task, 2)
    assert [span["attributes"]["blueque.attempt"] for span in seen] == [1, 2]
    assert [span["status"]["status_code"] for span in seen] == ["UNSET", "UNSET"]


def test_a_coroutine_has_the_span_as_its_own(programs, client, queue, spans):
    programs.listener("work:run_async")
    task = outcome(client, queue.enqueue("async"))
    (span,) = spans(task)
    assert task.result == [span["context"]["span_id"][2:], None]


def test_a_child_that_the_handler_has_forked_ends_no_span(programs, client, queue, spans):
    programs.listener("work:run")
    task = outcome(client, queue.enqueue("fork"))
    (span,) = spans(task)
    assert task.result[0] == span["context"]["span_id"][2:]


def test_tasks_that_a_task_makes_have_its_span(programs, client, queue, spans):
    programs.listener("work:run")
    task = outcome(client, queue.enqueue("spawn"))
    (span,) = spans(task)
    for task_id in (New("work", 1, key=key).record(task.id).task for key in (1, 2)):
        made = outcome(client, task_id)
        assert is_trace_of(made.context["traceparent"], span)
        assert spans(made)[0]["links"][0]["context"]["span_id"] == span["context"]["span_id"]


def test_a_program_finds_the_trace_of_its_producer(programs, client, queue):
    programs.listener("--exec", "sh", "-c", 'echo "$TRACEPARENT $TRACESTATE"')
    with TRACER.start_as_current_span("ask") as span:
        task_id = queue.enqueue(1)
    own = {"traceparent": header(span), "tracestate": "a=1"}
    assert outcome(client, task_id).result == f"{header(span)} "
    assert outcome(client, queue.enqueue(2, context=own)).result == f"{header(span)} a=1"
    assert outcome(client, queue.enqueue(3, context={"traceparent": "a\0b"})).result == " "


def test_a_program_finds_the_trace_of_its_attempt_where_hooks_use_opentelemetry(
    programs, client, queue, spans
):
    programs.write(
        "from work import provider\nclass Hooks:\n    def before_start(self, task): pass",
        "hooks.py",
    )
    programs.listener(
        "--exec",
        "sh",
        "-c",
        'echo "$TRACEPARENT"; exit 2',
        "--",
        environ={"BLUEQUE_HOOKS": "hooks:Hooks"},
    )
    task = outcome(client, queue.enqueue(1))
    (span,) = spans(task)
    lines = [line.text for line in client.get_log(task.id)[0]]
    assert is_trace_of(lines[0], span)
    assert span["attributes"]["error.type"] == "exit"


def test_spans_that_cannot_be_exported_hold_up_no_task(programs, client, queue):
    programs.write(
        """
        import threading
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from blueque.task_process import spans

        spans.FLUSH = 0.1

        class Away(TracerProvider):
            def force_flush(self, timeout_millis):
                threading.Event().wait()

        def away(task):
            return "done"

        trace.set_tracer_provider(Away())
        """,
        "away.py",
    )
    programs.listener("away:away")
    task = outcome(client, queue.enqueue(1))
    assert task.result == "done"
    assert [line.text for line in client.get_log(task.id)[0]] == [
        "-- blueque: spans were not exported within 0.1 s --"
    ]


def test_a_span_that_cannot_be_begun_changes_nothing(programs, client, queue):
    programs.write(
        """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

        class Broken(SpanProcessor):
            def on_start(self, span, parent_context=None):
                raise OSError("no collector")

        provider = TracerProvider()
        provider.add_span_processor(Broken())
        trace.set_tracer_provider(provider)

        def run(task):
            return "done"
        """,
        "broken.py",
    )
    programs.listener("broken:run")
    task = outcome(client, queue.enqueue(1))
    assert task.result == "done"
    assert [line.text for line in client.get_log(task.id)[0]] == [
        "-- blueque: OpenTelemetry: OSError: no collector --"
    ]


def test_a_program_without_opentelemetry_imports_nothing_of_it(server, tmp_path):
    code = """
import sys, blueque
from blueque.testing import run_task
blueque.Client(sys.argv[1]).get_queue("work").enqueue(1)
assert run_task(lambda task: "done", 1).result == "done"
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, server.url], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_example_of_the_guide_shows_its_spans(programs, client):
    text = (ROOT / "docs/guide/handlers.md").read_text()
    (shell,) = re.findall(r"^```sh\n(cat >traced.py.*?)^```$", text, re.M | re.S)
    environ = {"REDIS_URL": client.url, "BLUEQUE_SPOOL": str(programs.directory / "s")}
    programs.write(
        """
        from blueque.testing import run_task
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from traced import encode, provider

        spans = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(spans))
        run_task(encode, {"film": "Metropolis"}, queue="traced")
        assert [span.name for span in spans.get_finished_spans()] == ["mux", "process traced"]
    """,
        "in_memory.py",
    )
    python = f'python() {{ {sys.executable} "$@"; }}'
    listener = 'blueque-listener() { python -m blueque.cli.listener "$@"; }'
    commands = "\n".join(["set -e", python, listener, shell, "python in_memory.py"])
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=programs.directory,
        env={**os.environ, **environ, "PYTHONPATH": f"{ROOT}:."},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (task,) = client.get_inspector().listing(["traced"], ["complete"], 9).tasks
    printed = "\n".join(line.text for line in client.get_log(task.id)[0])
    assert re.findall(r'"name": "(.*)"', printed) == ["mux", "process traced"]
