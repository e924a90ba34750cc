"""A handler whose attempts are spans of OpenTelemetry. `python traced.py` makes a task for it."""

import functools

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from blueque import Client

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("films")


def traced(handler):
    """Make each attempt of a handler a span with a link to the span of its producer."""

    @functools.wraps(handler)
    def run(task, *parameters):
        producer = trace.get_current_span(extract(task.context or {})).get_span_context()
        try:
            with tracer.start_as_current_span(
                f"process {task.queue}",
                kind=trace.SpanKind.CONSUMER,
                links=[trace.Link(producer)] if producer.is_valid else [],
                attributes={
                    "messaging.system": "blueque",
                    "messaging.operation.name": "process",
                    "messaging.operation.type": "process",
                    "messaging.destination.name": task.queue or "",
                    "messaging.message.id": task.id,
                    "blueque.attempt": task.attempt or 1,
                },
            ):
                return handler(task, *parameters)
        finally:
            provider.force_flush(5_000)

    return run


@traced
def encode(task):
    with tracer.start_as_current_span("mux"):
        return task.parameters["film"]


if __name__ == "__main__":
    with tracer.start_as_current_span("ask"):
        print(Client().get_queue("traced").enqueue({"film": "Metropolis"}))
