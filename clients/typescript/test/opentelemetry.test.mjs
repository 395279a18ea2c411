// Spans of inserts and handlers, without a database.
import assert from "node:assert/strict";
import { test } from "node:test";
import { context, SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { trace } from "@opentelemetry/api";
import { Snooze } from "postgres-jobs";
import { tracing } from "postgres-jobs/opentelemetry";

const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());

const job = (meta, attempt) => ({ id: 7, kind: "k", queue: "q", attempt, meta });

async function spans(run) {
  exporter.reset();
  await run().catch(() => {});
  return exporter.getFinishedSpans();
}

test("a first attempt is the child of its insert, a retry has a link to it", async () => {
  let meta;
  const [insert] = await spans(() =>
    tracing().insert([{ kind: "k", args: {}, queue: "q", meta: { mine: 1 } }], async ([traced]) => {
      meta = traced.meta;
      return [];
    }),
  );
  assert.equal(insert.kind, SpanKind.PRODUCER);
  assert.equal(meta.mine, 1);
  const [first] = await spans(() => tracing().work(job(meta, 1), async () => 1));
  assert.equal(first.spanContext().traceId, insert.spanContext().traceId);
  assert.equal(first.parentSpanContext.spanId, insert.spanContext().spanId);
  const [retry] = await spans(() => tracing().work(job(meta, 2), async () => 1));
  assert.notEqual(retry.spanContext().traceId, insert.spanContext().traceId);
  assert.equal(retry.links[0].context.spanId, insert.spanContext().spanId);
});

test("a failure is the status of its span, putting a job off is not", async () => {
  const fails = (error) => spans(() => tracing().work(job({}, 1), async () => Promise.reject(error)));
  const [failed] = await fails(new TypeError("no"));
  assert.deepEqual(failed.status, { code: SpanStatusCode.ERROR, message: "no" });
  const [snoozed] = await fails(new Snooze(1));
  assert.equal(snoozed.status.code, SpanStatusCode.UNSET);
});
