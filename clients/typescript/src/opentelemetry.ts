import {
  context, isSpanContextValid, SpanKind, SpanStatusCode, trace,
  type Attributes, type Context, type Span, type SpanContext, type SpanOptions,
} from "@opentelemetry/api";
import { completion, resultOf, timedOut } from "./attempt.js";
import { askedFor, type Result } from "./endings.js";
import type { Job } from "./job.js";
import type { Middleware } from "./middleware.js";
import { VERSION } from "./version.js";

/**
 * Spans for inserts and attempts, by the messaging conventions: middleware for a `Producer` and a
 * `Worker`.
 *
 * The producer's span travels as `traceparent` in meta. A first attempt is its child; a retry starts
 * a new trace with a link to it. A span fails if its insert or attempt fails. The status stays unset
 * if the job is snoozed, cancelled, released at a stop or lost.
 */
export function tracing(): Required<Middleware> {
  return {
    insert(jobs, next) {
      const queue = jobs[0]?.queue ?? "default";
      const attributes = { ...about("insert", "send", queue), "messaging.batch.message_count": jobs.length };
      return within(`insert ${queue}`, { kind: SpanKind.PRODUCER, attributes }, context.active(), (span) => {
        const traceparent = written(span.spanContext());
        return next(traceparent ? jobs.map((job) => ({ ...job, meta: { ...job.meta, traceparent } })) : jobs);
      });
    },
    work(job, next) {
      const sender = read(job.meta.traceparent);
      const isRetry = job.attempt > 1;
      const links = sender && isRetry ? [{ context: sender }] : [];
      // Not a child of the span in which the worker was started.
      const active = trace.deleteSpan(context.active());
      const parent = sender && !isRetry ? trace.setSpanContext(active, sender) : active;
      const attributes = {
        ...about("work", "process", job.queue),
        "messaging.message.id": String(job.id),
        "jobs.kind": job.kind,
        "jobs.attempt": job.attempt,
      };
      return within(`work ${job.queue}`, { kind: SpanKind.CONSUMER, links, attributes }, parent, next, job);
    },
  };
}

const about = (name: string, type: string, queue: string): Attributes => ({
  "messaging.system": "postgres_jobs",
  "messaging.operation.name": name,
  "messaging.operation.type": type,
  "messaging.destination.name": queue,
});

function within<T>(
  name: string,
  options: SpanOptions,
  parent: Context,
  run: (span: Span) => Promise<T>,
  job?: Job,
): Promise<T> {
  const tracer = trace.getTracer("postgres-jobs", VERSION);
  return tracer.startActiveSpan(name, options, parent, async (span) => {
    const tell = (result?: Result) => {
      if (result?.do !== "fail" || job?.signal.reason?.why === "lost") return;
      const { type, trace: stack } = result.details;
      span.setAttribute("error.type", type!);
      span.recordException({ name: type!, message: result.error, stack });
      span.setStatus({ code: SpanStatusCode.ERROR, message: result.error });
    };
    try {
      const returned = await run(span);
      // The worker encodes the output after the span has ended, so it is encoded here as well.
      if (job && !job.isCompleted) tell(timedOut(job.signal) ?? askedFor(returned) ?? completion(returned));
      return returned;
    } catch (thrown) {
      tell(resultOf(thrown, job?.signal));
      throw thrown;
    } finally {
      span.end();
    }
  });
}

// W3C Trace Context. Without an SDK there is none.
const written = (span: SpanContext): string | undefined =>
  isSpanContextValid(span)
    ? `00-${span.traceId}-${span.spanId}-${span.traceFlags.toString(16).padStart(2, "0")}`
    : undefined;

function read(traceparent: unknown): SpanContext | undefined {
  if (typeof traceparent !== "string") return undefined;
  const [, traceId = "", spanId = "", flags = ""] = /^00-(\w{32})-(\w{16})-([0-9a-f]{2})$/.exec(traceparent) ?? [];
  const span = { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true };
  return isSpanContextValid(span) ? span : undefined;
}
