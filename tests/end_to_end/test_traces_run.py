"""Traces of OpenTelemetry, from the call that makes a task to the span of its attempt, which a decorator makes."""

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
from blueque.producer.workflow_writer import digest
from blueque.queries.listing import STATUSES

TRACER = TracerProvider().get_tracer("test")

DOCUMENT = (ROOT / "docs/guide/processes.md").read_text()
(SHELL,) = re.findall(r"^```sh\npip install opentelemetry-sdk\n(.*?)^```$", DOCUMENT, re.M | re.S)
MODULE = (ROOT / "examples/traced.py").read_text()

WORK = """
import blueque
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from traced import provider, traced

class ToFile(SpanExporter):
    def export(self, spans):
        with open("spans", "a") as file:
            file.writelines(span.to_json(indent=None) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS

provider.add_span_processor(SimpleSpanProcessor(ToFile()))

@traced
def run(task):
    current = f"{trace.get_current_span().get_span_context().span_id:016x}"
    match task.parameters:
        case "fail":
            raise ValueError("no such film")
        case "later" if task.attempt == 1:
            raise blueque.RetryLater(0, "not yet")
        case "spawn":
            task.spawn("work", "next", key=1)
            return blueque.Then(current, [blueque.New("work", "last", key=2)])
    return [current, task.context]

@blueque.handler("work")
@traced
def registered(task, parameters):
    return parameters
"""


@pytest.fixture
def programs(programs):
    programs.write(MODULE, "traced.py")
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
        queue.enqueue_many([7], keys=["k"], group="night")
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


@pytest.mark.parametrize("options", [(), ("--reuse", "5")], ids=repr)
def test_an_attempt_is_a_span_with_a_link_to_its_producer(programs, client, queue, spans, options):
    programs.listener("work:run", *options)
    with TRACER.start_as_current_span("ask") as asked:
        first = outcome(client, queue.enqueue("first"))
        second = outcome(client, queue.enqueue("second"))

    for task in (first, second):
        (span,) = spans(task)
        assert (span["name"], span["kind"]) == ("process work", "SpanKind.CONSUMER")
        assert span["parent_id"] is None and span["status"]["status_code"] == "UNSET"
        assert is_trace_of(header(asked), span["links"][0])
        assert span["attributes"]["blueque.attempt"] == 1
        assert task.result == [span["context"]["span_id"][2:], {"traceparent": header(asked)}]


def test_an_attempt_that_raises_has_an_error_and_each_is_a_span(programs, client, queue, spans):
    programs.listener("work:run")
    failed = outcome(client, queue.enqueue("fail"))
    later = outcome(client, queue.enqueue("later", retry=Retry(max=1)))

    (span,) = spans(failed)
    assert span["status"]["status_code"] == "ERROR" and span["links"] == []
    assert [event["name"] for event in span["events"]] == ["exception"]
    seen = spans(later, 2)
    assert [span["attributes"]["blueque.attempt"] for span in seen] == [1, 2]
    assert [span["status"]["status_code"] for span in seen] == ["ERROR", "UNSET"]


def test_a_registered_handler_gets_its_parameters_in_its_span(programs, client, queue, spans):
    programs.listener("work:registered")
    task = outcome(client, queue.enqueue({"film": "Metropolis"}))
    assert task.result == {"film": "Metropolis"} and len(spans(task)) == 1


def test_tasks_that_a_task_makes_have_its_span(programs, client, queue, spans):
    programs.listener("work:run")
    task = outcome(client, queue.enqueue("spawn"))
    (span,) = spans(task)
    for task_id in (New("work", 1, key=key).record(task.id).task for key in (1, 2)):
        made = outcome(client, task_id)
        assert is_trace_of(made.context["traceparent"], span)
        assert is_trace_of(made.context["traceparent"], spans(made)[0]["links"][0])


def test_a_program_finds_the_trace_of_its_producer(programs, client, queue):
    programs.listener("--exec", "sh", "-c", 'echo "$TRACEPARENT $TRACESTATE"')
    with TRACER.start_as_current_span("ask") as span:
        task_id = queue.enqueue(1)
    own = {"traceparent": header(span), "tracestate": "a=1"}
    assert outcome(client, task_id).result == f"{header(span)} "
    assert outcome(client, queue.enqueue(2, context=own)).result == f"{header(span)} a=1"
    assert outcome(client, queue.enqueue(3, context={"traceparent": "a\0b"})).result == " "


def test_a_program_finds_the_trace_of_a_span_that_a_hook_has_begun(programs, client, queue):
    programs.write(
        """
        from opentelemetry import context, trace
        from traced import tracer

        class Hooks:
            def before_start(self, task):
                context.attach(trace.set_span_in_context(tracer.start_span("own")))
        """,
        "hooks.py",
    )
    programs.listener(
        *("--exec", "sh", "-c", 'echo "$TRACEPARENT"'), environ={"BLUEQUE_HOOKS": "hooks:Hooks"}
    )
    with TRACER.start_as_current_span("ask") as span:
        task = outcome(client, queue.enqueue(1))
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[13]", task.result)
    assert task.result != header(span)


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
    shell = SHELL.replace("examples/", f"{ROOT}/examples/")
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
