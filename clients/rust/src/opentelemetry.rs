//! OpenTelemetry spans for inserts and attempts.

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{
    FutureExt, Link, Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt,
    TraceFlags, TraceId, TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue};

use crate::{AfterInsert, Error, Handling, Inserted, Job, Middleware, NewJob, Reason};

/// Middleware that makes a span for every insert and every attempt, by the messaging conventions
/// and the global tracer.
///
/// The producer's span travels as `traceparent` in meta. A first attempt is its child; a retry
/// starts a new trace with a link to it. A span fails if its insert or attempt fails. The status
/// stays unset if the job is snoozed, cancelled, released at a stop or lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenTelemetry;

fn tracer() -> BoxedTracer {
    global::tracer("postgres-jobs")
}

/// A span by the conventions for messaging.
fn builder(name: &'static str, kind: SpanKind, job: &str, queue: &str) -> SpanBuilder {
    let operation = if kind == SpanKind::Producer { "send" } else { "process" };
    let attributes = [
        KeyValue::new("messaging.system", "postgres_jobs"),
        KeyValue::new("messaging.operation.name", name),
        KeyValue::new("messaging.operation.type", operation),
        KeyValue::new("messaging.destination.name", queue.to_owned()),
        KeyValue::new("jobs.kind", job.to_owned()),
    ];
    let builder = SpanBuilder::from_name(format!("{name} {queue}")).with_kind(kind);
    builder.with_attributes(attributes)
}

impl Middleware for OpenTelemetry {
    fn insert(&self, job: &mut NewJob) -> Option<AfterInsert> {
        let queue = job.queue.as_deref().unwrap_or("default");
        let mut span = tracer().build(builder("insert", SpanKind::Producer, &job.kind, queue));
        if span.span_context().is_valid() {
            job.meta.insert("traceparent".into(), traceparent(span.span_context()).into());
        }
        Some(Box::new(move |inserted| match inserted {
            Ok(Inserted { id: Some(id), .. }) => {
                span.set_attribute(KeyValue::new("messaging.message.id", id.to_string()));
            }
            Ok(_) => {}
            Err(error) => {
                let error_type = error.code().unwrap_or("ClientError".into());
                span.set_attribute(KeyValue::new("error.type", error_type));
                span.set_status(Status::error(error.to_string()));
            }
        }))
    }

    fn work(&self, job: Job<()>, handling: Handling) -> Handling {
        Box::pin(async move {
            let producer = job.meta["traceparent"].as_str().and_then(parsed);
            let builder = builder("work", SpanKind::Consumer, &job.kind, &job.queue);
            let span = match producer {
                Some(producer) if job.attempt == 1 => {
                    let parent = Context::new().with_remote_span_context(producer);
                    tracer().build_with_context(builder, &parent)
                }
                producer => {
                    let links = producer.into_iter().map(Link::with_context).collect();
                    tracer().build_with_context(builder.with_links(links), &Context::new())
                }
            };
            let context = Context::new().with_span(span);
            let span = context.span();
            span.set_attribute(KeyValue::new("messaging.message.id", job.id.to_string()));
            span.set_attribute(KeyValue::new("jobs.attempt", i64::from(job.attempt)));
            let result = handling.with_context(context.clone()).await;
            // The worker sends the same.
            let timeout = Error::timeout();
            let error = match (&result, job.cancelled_because()) {
                // The job is lost.
                (_, Some(Reason::Lost)) => None,
                (Ok(_), _) if job.is_completed() => None,
                (_, Some(Reason::Timeout)) => Some(&timeout),
                // The handler stopped because it was cancelled.
                (Err(error), Some(_)) if error.is_plain() => None,
                _ => result.as_ref().err(),
            };
            if let Some(error) = error
                && let Some(type_name) = error.details()["type"].as_str()
            {
                span.set_attribute(KeyValue::new("error.type", type_name.to_owned()));
                span.set_status(Status::error(error.to_string()));
            }
            result
        })
    }
}

/// A context in the format of W3C Trace Context.
fn traceparent(context: &SpanContext) -> String {
    let (trace, span) = (context.trace_id(), context.span_id());
    format!("00-{trace}-{span}-{:02x}", context.trace_flags().to_u8())
}

fn parsed(traceparent: &str) -> Option<SpanContext> {
    let parts: Vec<_> = traceparent.split('-').collect();
    let [_, trace, span, flags, ..] = parts[..] else {
        return None;
    };
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        true,
        TraceState::NONE,
    );
    Some(context).filter(SpanContext::is_valid)
}
