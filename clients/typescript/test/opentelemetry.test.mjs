// Spans of inserts and handlers, without a database.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { context, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Aborted, Cancel, Discard, RetryIn, Snooze } from "postgres-jobs";
import { tracing } from "postgres-jobs/opentelemetry";

const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());

const job = (meta, attempt, signal = new AbortController().signal) =>
  ({ id: 7, kind: "k", queue: "q", attempt, meta, signal });

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

test("spans have the attributes of the conventions for messaging", async () => {
  const [insert] = await spans(() => tracing().insert([{ kind: "k" }, { kind: "k" }], async () => []));
  assert.equal(insert.name, "insert default");
  assert.deepEqual(insert.attributes, {
    "messaging.system": "postgres_jobs",
    "messaging.operation.name": "insert",
    "messaging.operation.type": "send",
    "messaging.destination.name": "default",
    "messaging.batch.message_count": 2,
  });
  const [work] = await spans(() => tracing().work(job({}, 3), async () => 1));
  assert.equal(work.name, "work q");
  assert.equal(work.kind, SpanKind.CONSUMER);
  assert.deepEqual(work.attributes, {
    "messaging.system": "postgres_jobs",
    "messaging.operation.name": "work",
    "messaging.operation.type": "process",
    "messaging.destination.name": "q",
    "messaging.message.id": "7",
    "jobs.kind": "k",
    "jobs.attempt": 3,
  });
});

test("a span of a handler is current, and never within the one that started the worker", async () => {
  const [inner, work] = await spans(() =>
    trace.getTracer("test").startActiveSpan("start", () =>
      tracing().work(job({}, 1), async () => trace.getTracer("test").startSpan("inner").end()),
    ),
  );
  assert.equal(inner.parentSpanContext.spanId, work.spanContext().spanId);
  assert.equal(work.parentSpanContext, undefined);
});

test("a failure is the status of its span and its exception; putting off and cancelling are not", async () => {
  const fails = (error) => spans(() => tracing().work(job({}, 1), async () => Promise.reject(error)));
  for (const error of [new TypeError("no"), new Discard(new TypeError("no"))]) {
    const [failed] = await fails(error);
    assert.deepEqual(failed.status, { code: SpanStatusCode.ERROR, message: "no" });
    assert.equal(failed.events[0].attributes["exception.type"], "TypeError");
    assert.equal(failed.attributes["error.type"], "TypeError");
  }
  const [returned] = await spans(() => tracing().work(job({}, 1), async () => new Discard("no")));
  assert.deepEqual(returned.status, { code: SpanStatusCode.ERROR, message: "no" });
  const circle = {};
  circle.self = circle;
  const [invalid] = await spans(() => tracing().work(job({}, 1), async () => circle));
  assert.equal(invalid.status.code, SpanStatusCode.ERROR);
  assert.equal(invalid.attributes["error.type"], "invalid_output");
  const completed = { ...job({}, 1), isCompleted: true }; // whose output is not sent
  const [ignored] = await spans(() => tracing().work(completed, async () => circle));
  assert.equal(ignored.status.code, SpanStatusCode.UNSET);
  const inCommonJs = createRequire(import.meta.url)("postgres-jobs");
  for (const ending of [new Snooze(1), new Cancel("mine"), new inCommonJs.Snooze(1)]) {
    const [span] = await fails(ending);
    assert.equal(span.status.code, SpanStatusCode.UNSET);
    assert.deepEqual(span.events, []);
  }
  const [refused] = await spans(() => tracing().insert([{ kind: "k" }], async () => Promise.reject("no")));
  assert.deepEqual(refused.status, { code: SpanStatusCode.ERROR, message: "no" });
});

test("a timeout is a failure; what was cancelled, stopped or lost is none", async () => {
  const inCommonJs = createRequire(import.meta.url)("postgres-jobs");
  for (const reason of [new Aborted("timeout"), new inCommonJs.Aborted("timeout")]) {
    for (const handler of [async () => "late", async () => Promise.reject(reason), async () => new Snooze(1)]) {
      const [span] = await spans(() => tracing().work(job({}, 1, AbortSignal.abort(reason)), handler));
      assert.deepEqual(span.status, { code: SpanStatusCode.ERROR, message: "the attempt ran longer than its timeout" });
      assert.equal(span.attributes["error.type"], "timeout");
    }
  }
  const fails = [
    async () => new Discard("no"),
    async () => Promise.reject(new Discard("no")),
    async () => Promise.reject(new RetryIn(1, "no")),
    async () => Symbol("no JSON"),
  ];
  for (const why of ["cancelled", "stopping", "lost"]) {
    for (const reason of [new Aborted(why), new inCommonJs.Aborted(why)]) {
      const signal = AbortSignal.abort(reason);
      for (const handler of [async () => "in time", async () => Promise.reject(reason), ...fails]) {
        const [span] = await spans(() => tracing().work(job({}, 1, signal), handler));
        const hasFailed = fails.includes(handler) && why !== "lost";
        assert.equal(span.status.code, hasFailed ? SpanStatusCode.ERROR : SpanStatusCode.UNSET);
        assert.equal(span.events.length, hasFailed ? 1 : 0);
        assert.equal("error.type" in span.attributes, hasFailed);
      }
    }
  }
});

test("a traceparent that is none is as none", async () => {
  const zeros = `00-${"0".repeat(32)}-${"0".repeat(16)}-01`;
  for (const traceparent of [zeros, "no", 1, null, [], { toString: 1 }]) {
    const [work] = await spans(() => tracing().work(job({ traceparent }, 1), async () => 1));
    assert.equal(work.parentSpanContext, undefined);
    assert.equal(work.status.code, SpanStatusCode.UNSET);
  }
});

test("without an SDK nothing is written to meta", async () => {
  trace.disable();
  let meta;
  await tracing().insert([{ kind: "k" }], async ([untraced]) => ((meta = untraced.meta), []));
  assert.equal(meta, undefined);
});
