import { context, SpanKind, SpanStatusCode, trace, type Attributes, type SpanContext } from "@opentelemetry/api";
import { askedFor, failure } from "./endings.js";
import type { Middleware } from "./middleware.js";
import { VERSION } from "./version.js";

/**
 * Spans around inserts and handlers, by the conventions for messaging: middleware for a `Producer`
 * and for a `Worker`.
 *
 * The producer's span travels as `traceparent` in meta. A first attempt is its child; a retry is a
 * trace of its own, with a link to it.
 */
export function tracing(): Required<Middleware> {
  const tracer = trace.getTracer("postgres-jobs", VERSION);
  return {
    insert(jobs, next) {
      const queue = jobs[0]?.queue ?? "default";
      const attributes = { ...about("insert", "send", queue), "messaging.batch.message_count": jobs.length };
      return tracer.startActiveSpan(`insert ${queue}`, { kind: SpanKind.PRODUCER, attributes }, (span) => {
        const traceparent = written(span.spanContext());
        const traced = jobs.map((job) => ({ ...job, meta: { ...job.meta, traceparent } }));
        return next(traced)
          .catch((error: unknown) => {
            span.setStatus({ code: SpanStatusCode.ERROR, message: String(error) });
            throw error;
          })
          .finally(() => span.end());
      });
    },
    work(job, next) {
      const sender = read(job.meta.traceparent);
      const isRetry = job.attempt > 1;
      const options = {
        kind: SpanKind.CONSUMER,
        root: isRetry,
        links: isRetry && sender ? [{ context: sender }] : [],
        attributes: {
          ...about("work", "process", job.queue),
          "messaging.message.id": String(job.id),
          "jobs.kind": job.kind,
          "jobs.attempt": job.attempt,
        },
      };
      const parent = sender && !isRetry ? trace.setSpanContext(context.active(), sender) : context.active();
      return tracer.startActiveSpan(`work ${job.queue}`, options, parent, async (span) => {
        try {
          return await next();
        } catch (error) {
          // Putting a job off, or cancelling it, is no failure.
          const result = askedFor(error) ?? failure(error);
          if (result.do === "fail") span.setStatus({ code: SpanStatusCode.ERROR, message: result.error });
          throw error;
        } finally {
          span.end();
        }
      });
    },
  };
}

const about = (name: string, type: string, queue: string): Attributes => ({
  "messaging.system": "postgres_jobs",
  "messaging.operation.name": name,
  "messaging.operation.type": type,
  "messaging.destination.name": queue,
});

/** As the Trace Context of the W3C has it. */
const written = ({ traceId, spanId, traceFlags }: SpanContext): string =>
  `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;

function read(traceparent: unknown): SpanContext | undefined {
  const found = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(String(traceparent));
  if (!found) return undefined;
  const [, traceId, spanId, flags] = found as unknown as [string, string, string, string];
  return { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true };
}
