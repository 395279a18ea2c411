"""OpenTelemetry: a span for every insert and every attempt, by the messaging conventions.

    insert_middleware.append(opentelemetry.around_insert)
    Worker(dsn, middleware=[opentelemetry.around_work])

The producer's span travels as `traceparent` in meta. A first attempt is its child; a retry starts a
new trace with a link to it. This module needs the package opentelemetry-api.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ._version import __version__
from .job import Job
from .outcomes import TIMED_OUT, Finish, Outcome, completion, failure, wire
from .produce import NewJob

_tracer = trace.get_tracer("postgres_jobs", __version__)
_propagator = TraceContextTextMapPropagator()


@contextmanager
def around_insert(jobs: list[NewJob]) -> Iterator[None]:
    """A producer span around an insert of one job or many. It fails if the insert fails."""
    queue = jobs[0].get("queue") or "default" if jobs else "default"
    attributes = _attributes("insert", "send", queue) | {"messaging.batch.message_count": len(jobs)}
    with _tracer.start_as_current_span(
        f"insert {queue}", kind=trace.SpanKind.PRODUCER, attributes=attributes
    ) as span:
        for job in jobs:
            _propagator.inject(job["meta"])
        try:
            yield
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            raise


async def around_work(job: Job[Any], handler: Callable[[Job[Any]], Awaitable[Any]]) -> Any:
    """A consumer span around a handler. It fails if the attempt fails. The status stays unset if
    the job is snoozed, cancelled, released at a stop or lost."""
    producer = _propagator.extract({name: text for name, text in job.meta.items() if isinstance(text, str)})
    sender = trace.get_current_span(producer).get_span_context()
    is_retry = job.attempt > 1
    with _tracer.start_as_current_span(
        f"work {job.queue}",
        context=None if is_retry else producer,
        kind=trace.SpanKind.CONSUMER,
        links=[trace.Link(sender)] if is_retry and sender.is_valid else [],
        attributes=_attributes("work", "process", job.queue)
        | {"messaging.message.id": str(job.id), "jobs.kind": job.kind, "jobs.attempt": job.attempt},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            output = await handler(job)
        except BaseException as error:
            _end(span, job, failure(error), error)
            raise
        # The worker encodes the output after the span has ended, so it is encoded here as well.
        _end(span, job, wire(job.id, job.token, completion(output))[1])
        return output


def _end(span: trace.Span, job: Job[Any], finish: Finish, error: BaseException | None = None) -> None:
    if job.cancelled_because == "lost" or (error is None and job._is_completed):
        return
    has_given_up = error is not None and job.cancelled.is_set() and not isinstance(error, Outcome)
    if job.cancelled_because == "timeout":
        finish = TIMED_OUT
    elif has_given_up or finish["do"] != "fail":
        return
    if error is not None:
        span.record_exception(error)
    span.set_attribute("error.type", finish["details"]["type"])
    span.set_status(trace.StatusCode.ERROR, finish["error"])


def _attributes(name: str, type: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": "postgres_jobs",
        "messaging.operation.name": name,
        "messaging.operation.type": type,
        "messaging.destination.name": queue,
    }
