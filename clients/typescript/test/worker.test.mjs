// What the cases of conformance cannot see of a worker: its layers, its log, its packages.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire, syncBuiltinESMExports } from "node:module";
import { connect as connectSocket, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import timers, { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Cancel, connectPg, connectPostgres, Discard, insert, Producer, RetryIn, Snooze, waitFor, Worker } from "postgres-jobs";
import { url, withDatabase } from "./database.mjs";

/**
 * Runs a module in a process of its own, which has `url`, `queue`, `logger` and the package. Returns
 * how it is stopped, and what it says. A stop is SIGTERM; it returns the code with which it ends.
 */
function inProcess(t, url, queue, text) {
  const module = `import * as jobs from "postgres-jobs";
    const [url, queue, logger] = [${JSON.stringify(url)}, ${JSON.stringify(queue)}, { info() {}, warn() {}, error() {} }];
    ${text}`;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const child = spawn(process.execPath, ["--input-type=module", "-e", module], { cwd, stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  const stop = async () => {
    child.kill("SIGTERM");
    return (await ended)[0];
  };
  return [stop, child.stdout];
}

/** The URL by which the server is reached, until the end of the test. */
async function listening(t, server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return Object.assign(new URL(url), { hostname: "127.0.0.1", port: server.address().port }).href;
}

/** The URL of a server that has too many sessions to take one more. */
function full(t) {
  const fields = "SFATAL\0VFATAL\0C53300\0Mtoo many\0\0";
  const message = Buffer.from(`E....${fields}`);
  message.writeInt32BE(4 + fields.length, 1);
  return listening(t, createServer((client) => client.once("data", () => client.end(message))));
}

/** A way to the server that can refuse what is new, and fall silent: nothing hears anything. */
async function network(t) {
  const { hostname, port } = new URL(url);
  const sockets = [];
  let isSilent = false;
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const there = connectSocket(port || 5432, hostname || "localhost");
    sockets.push(client, there);
    for (const [from, to] of [[client, there], [there, client]]) {
      from.on("data", (data) => isSilent || to.write(data));
      from.on("end", () => isSilent || to.end());
      from.on("error", () => {});
    }
  });
  t.after(() => sockets.forEach((socket) => socket.destroy()));
  const through = await listening(t, server);
  return { through, refuse: () => server.close(), fallSilent: () => (isSilent = true) };
}

const require = createRequire(import.meta.url);
const quiet = { info() {}, warn() {}, error() {} };
// What a worker reads first.
const about = [{ row: '{"extension":"0.1.0","database":"d","user":"u"}' }];

async function worked(worker, run) {
  await worker.start();
  return run().finally(() => worker.stop());
}

async function stateOf(client, id) {
  const { rows } = await client.query("select state from jobs.jobs where id = $1", [id]);
  return rows[0].state;
}

/** Waits for what must come. It counts looks, each 20 ms: the machine may stand still for a while. */
async function comes(is, most = 3000) {
  for (let looks = 0; !(await is()); looks++) {
    assert.ok(looks < most, "it does not come");
    await sleep(20);
  }
}

const becomes = (client, id, state) => comes(async () => (await stateOf(client, id)) === state);

withDatabase("middleware is around a handler, the first outermost", async (client, queue) => {
  const seen = [];
  const layer = (name) => ({
    async work(job, next) {
      seen.push(`${name} before ${job.kind}`);
      return [name, await next().finally(() => seen.push(`${name} after`))];
    },
  });
  const middleware = [layer("outer"), {}, layer("inner")];
  const worker = new Worker(url, { queues: [queue], middleware, logger: quiet }).kind("k", () => "output");
  const [{ state, output }] = await worked(worker, async () => {
    const { id } = await insert(client, "k", {}, { queue });
    return waitFor(client, [id]);
  });
  assert.deepEqual([state, output], ["completed", ["outer", ["inner", "output"]]]);
  assert.deepEqual(seen, ["outer before k", "inner before k", "inner after", "outer after"]);
});

withDatabase("what middleware throws fails the attempt", async (client, queue) => {
  const middleware = [{ work: () => { throw new TypeError("of a layer"); } }];
  const worker = new Worker(url, { queues: [queue], middleware, logger: quiet }).kind("k", () => "output");
  const [{ state, error }] = await worked(worker, async () => {
    const { id } = await insert(client, "k", {}, { queue, maxAttempts: 1 });
    return waitFor(client, [id]);
  });
  assert.deepEqual([state, error], ["discarded", "of a layer"]);
});

withDatabase("middleware is around an insert, and may change its jobs", async (client, queue) => {
  const tenant = { insert: (jobs, next) => next(jobs.map((job) => ({ ...job, queue, meta: { tenant: 7 } }))) };
  const refusing = { insert: async () => { throw new Error("refused"); } };
  const [{ id }] = await new Producer({ middleware: [tenant] }).insertMany(client, [{ kind: "k" }]);
  await assert.rejects(new Producer({ middleware: [tenant, refusing] }).insert(client, "k"), /refused/);
  const { rows } = await client.query("select id::int, meta from jobs.jobs where queue = $1", [queue]);
  assert.deepEqual(rows, [{ id, meta: { tenant: 7 } }]);
});

for (const [name, connect] of Object.entries({ pg: connectPg(url), postgres: connectPostgres(url) })) {
  withDatabase(`a worker with the package ${name} ends its wait at a stop`, async (client, queue) => {
    const worker = new Worker({ connect }, { queues: [queue], logger: quiet }).kind("k", () => "output");
    await worker.start();
    const { id } = await insert(client, "k", {}, { queue });
    assert.equal((await waitFor(client, [id]))[0].output, "output");
    await worker.stop();
    // A wait that goes on would do so for half a minute. A server may take a moment to see that
    // its client has gone.
    const left = "select from pg_stat_activity where application_name = $1";
    await comes(async () => (await client.query(left, [worker.name])).rows.length === 0, 500);
  });
}

for (const [name, connect] of Object.entries({ connectPg, connectPostgres })) {
  withDatabase(`${name}: a worker that the server refuses as it starts tries again`, async (client, queue, t) => {
    const urls = [await full(t), url, url, url];
    const toNext = (worker) => connect(urls.shift())(worker);
    const worker = new Worker({ connect: toNext }, { queues: [queue], logger: quiet }).kind("k", () => "output");
    const [{ output }] = await worked(worker, async () => waitFor(client, [(await insert(client, "k", {}, { queue })).id]));
    assert.equal(output, "output");
  });

  withDatabase(`${name}: a cancel request that cannot be sent is an error of its own`, async (client, _queue, t) => {
    const { through, refuse } = await network(t);
    const connection = await connect(through)("test");
    const sleeping = assert.rejects(connection.query("select pg_sleep(60)::text as row", []));
    await new Promise(setImmediate); // by then it is sent
    refuse();
    await assert.rejects(connection.cancel(), { code: "ECONNREFUSED" });
    await connection.close();
    await sleeping;
  });

  withDatabase(`${name}: connections that have fallen silent keep no process`, async (client, queue, t) => {
    const { through, fallSilent } = await network(t);
    const [stop, said] = inProcess(t, through, queue, `
      const connect = async (name) => {
        const connection = await jobs.${name}(url)(name);
        const query = async (text, ...given) => {
          const rows = await connection.query(text, ...given);
          if (text.includes("jobs.finish_many")) console.log("finished");
          return rows;
        };
        return { ...connection, query };
      };
      await new jobs.Worker({ connect }, { queues: [queue], logger }).kind("k", () => "output").run();`);
    await insert(client, "k", {}, { queue });
    await once(said, "data"); // all is heard that was asked
    fallSilent();
    assert.equal(await stop(), 0);
  });
}

/** The options of the package `postgres` that are in the URL. */
function optionsOf(url) {
  const { hostname, port, username, password, pathname } = new URL(url);
  return { host: hostname || "localhost", port: Number(port || 5432), user: username, password, database: pathname.slice(1) };
}

/** A port at which nobody listens. */
async function closedPort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

withDatabase("connectPostgres: hosts are tried in turn, and the one that answers gets the cancel request", async (_client, _queue, t) => {
  const { host, port, ...rest } = optionsOf(url);
  const connect = connectPostgres({ ...rest, host: ["127.0.0.1", host], port: [await closedPort(), port] });
  await assert.rejects(connect("test"), { code: "ECONNREFUSED" });
  const connection = await connect("test");
  t.after(() => connection.close());
  let isCancelled = false;
  const sleeping = assert
    .rejects(connection.query("select pg_sleep(60)::text as row", []), { code: "57014" })
    .then(() => (isCancelled = true));
  // A request that comes before the statement is passed over.
  await Promise.all([sleeping, comes(async () => (await connection.cancel(), isCancelled))]);
});

withDatabase("connectPostgres: a host that is silent is left for the next", async (_client, _queue, t) => {
  const silent = createServer((socket) => t.after(() => socket.destroy()));
  const { port: there } = new URL(await listening(t, silent));
  const { host, port, ...rest } = optionsOf(url);
  const connect = connectPostgres({ ...rest, host: ["127.0.0.1", host], port: [Number(there), port], connect_timeout: 5 });
  await assert.rejects(connect("test"), { code: "CONNECT_TIMEOUT" });
  await (await connect("test")).close();
});

withDatabase("connectPostgres: hosts that all refuse are an error", async () => {
  const [one, another] = [await closedPort(), await closedPort()];
  const connect = connectPostgres(`postgresql://127.0.0.1:${one},127.0.0.1:${another}/none`);
  for (let tries = 0; tries < 3; tries++) await assert.rejects(connect("test"), { code: "ECONNREFUSED" });
});

withDatabase("connectPostgres: a session that came in the place of another keeps no process", async (client, _queue, t) => {
  const { through, fallSilent } = await network(t);
  const [stop, said] = inProcess(t, through, "", `
    const connection = await jobs.connectPostgres(url)("test");
    process.once("SIGTERM", () => connection.close());
    const session = async () => (await connection.query("select pg_backend_pid()::text as row", []))[0].row;
    const first = await session();
    console.log(first);
    for (let next = first; next === first; next = await session().catch(() => first)) {
      await new Promise((resolve) => setTimeout(resolve, 200)); // it is to be idle when it is ended
    }
    console.log("again");`);
  const [first] = await once(said, "data");
  await client.query("select pg_terminate_backend($1)", [String(first)]);
  await once(said, "data");
  fallSilent();
  assert.equal(await stop(), 0);
});

withDatabase("connectPostgres: the options path, socket and ssl are the caller's", async (_client, _queue, t) => {
  const { host, port, ...rest } = optionsOf(url);
  const directory = await mkdtemp(join(tmpdir(), "jobs-"));
  t.after(() => rm(directory, { recursive: true }));
  const path = join(directory, ".s.PGSQL.5432");
  const local = createServer((socket) => socket.pipe(connectSocket(port, host)).pipe(socket)).listen(path);
  t.after(() => local.close());
  await once(local, "listening");
  const unreachable = { ...rest, host: "127.0.0.1", port: await closedPort() };
  let made = 0;
  const socket = async () => (made++, connectSocket(port, host));
  for (const options of [{ ...unreachable, path }, { ...rest, host: directory }, { ...unreachable, socket }]) {
    const connection = await connectPostgres(options)("test");
    assert.deepEqual([...(await connection.query("select 'x' as row", []))], [{ row: "x" }]);
    await connection.close();
  }
  assert.equal(made, 1);

  const asked = [];
  const secure = createServer((socket) => {
    socket.once("data", (request) => {
      asked.push(request.readInt32BE(4));
      socket.once("data", (hello) => (asked.push(hello[0]), socket.destroy()));
      socket.write("S");
    });
  });
  const { port: there } = new URL(await listening(t, secure));
  await assert.rejects(connectPostgres({ ...rest, host: "127.0.0.1", port: Number(there), ssl: "require" })("test"));
  assert.deepEqual(asked, [80877103, 0x16]); // SSLRequest, and the first byte of TLS
});

withDatabase("a handler that is left behind keeps no process, and ends no other worker", async (client, queue, t) => {
  const [stop] = inProcess(t, url, queue, `
    import { setTimeout } from "node:timers/promises";
    const worker = (kind, grace) => new jobs.Worker(url, { queues: [queue + kind], logger, grace });
    const stopped = new Promise((resolve) => process.once("SIGTERM", resolve));
    const first = worker("first", 0).kind("first", () => setTimeout(3e6));
    const second = worker("second", 60).kind("second", () => stopped.then(() => setTimeout(4000, "output")));
    await Promise.all([first.run(), second.run()]);`);
  const ids = [];
  for (const kind of ["first", "second"]) {
    const { id } = await insert(client, kind, {}, { queue: queue + kind });
    await becomes(client, id, "running");
    ids.push(id);
  }
  assert.equal(await stop(), 0);
  assert.deepEqual([await stateOf(client, ids[0]), await stateOf(client, ids[1])], ["available", "completed"]);
});

withDatabase("a log that nobody reads is no reason to log more", async (client, queue, t) => {
  const [stop, said] = inProcess(t, url, queue, `
    let errors = 0;
    logger.warn = console.log;
    logger.error = () => console.log(++errors);
    const worker = new jobs.Worker(url, { queues: [queue], logger });
    worker.kind("fails", () => Promise.reject(new Error("no")));
    worker.kind("passes", () => 1);
    console.log("begun");
    await worker.run();
    process.exitCode = Math.min(errors, 100);`);
  await once(said, "data");
  said.destroy();
  for (let times = 0; times < 3; times++) { // what fails to write first Node itself passes over
    const { id } = await insert(client, "fails", {}, { queue });
    await becomes(client, id, "retryable");
  }
  const { id: passing } = await insert(client, "passes", {}, { queue });
  await becomes(client, passing, "completed");
  assert.equal(await stop(), 0);
});

/** A logger, and what was logged: level, message and fields. The event loop may stand still with the machine. */
function logging() {
  const lines = [];
  const to = (level) => (message, fields) => message === "event loop blocked" || lines.push([level, message, fields]);
  return { lines, logger: { info: to("info"), warn: to("warn"), error: to("error") } };
}

withDatabase("a failed attempt is logged, one that ends otherwise is not", async (client, queue) => {
  const { lines, logger } = logging();
  let isPutOff = false;
  const worker = new Worker(url, { queues: [queue], logger })
    .kind("fails", () => { throw new TypeError("no"); })
    .kind("tarries", (_job, signal) => once(signal, "abort"), { timeout: 0.05 })
    .kind("invalid", () => NaN)
    .kind("refused", () => "\0")
    .kind("is cancelled", () => new Cancel("c"))
    .kind("is put off", () => ((isPutOff = !isPutOff) ? new Snooze(0) : "output"));
  const errors = {
    fails: "no",
    tarries: "the attempt ran longer than its timeout",
    invalid: "the output cannot be stored as JSON: NaN has no JSON form",
    refused: /^the output cannot be stored as JSON: .*Unicode/,
  };
  const invalid = ["invalid_output", "undefined"];
  const types = { fails: ["TypeError", "string"], tarries: ["timeout", "undefined"], invalid, refused: invalid };
  const ids = {};
  await worked(worker, async () => {
    for (const kind of [...Object.keys(errors), "is cancelled", "is put off"]) {
      ({ id: ids[kind] } = await insert(client, kind, {}, { queue, maxAttempts: 1 }));
    }
    await waitFor(client, Object.values(ids));
  });
  for (const [kind, error] of Object.entries(errors)) {
    const [[level, message, fields], discarded, ...more] = lines.filter(([, , { job }]) => job === ids[kind]);
    assert.deepEqual([level, message, more], ["warn", "attempt failed", []]);
    assert.deepEqual(discarded, ["error", "job discarded", fields]);
    const { error: text, type, trace, ...others } = fields;
    assert.deepEqual(others, { job: ids[kind], kind, attempt: 1, max_attempts: 1 });
    assert.deepEqual([type, typeof trace], types[kind]);
    error instanceof RegExp ? assert.match(text, error) : assert.equal(text, error);
  }
  const others = lines.filter(([, , { kind }]) => !(kind in errors));
  assert.deepEqual(others.map(([level, message, fields]) => [level, message, fields.worker]), [
    ["info", "worker started", worker.name], ["info", "worker stopped", worker.name],
  ]);
});

withDatabase("a handler that is left behind is logged", async (client, queue) => {
  const { lines, logger } = logging();
  let [begin, end] = [];
  const begun = new Promise((resolve) => (begin = resolve));
  const handler = () => (begin(), new Promise((resolve) => (end = resolve)));
  const worker = new Worker(url, { queues: [queue], logger, grace: 0 }).kind("k", handler);
  let id;
  await worked(worker, async () => {
    ({ id } = await insert(client, "k", {}, { queue }));
    await begun;
  });
  end();
  const warned = lines.filter(([level]) => level !== "info");
  assert.deepEqual(warned, [["warn", "handler did not stop", { job: id, kind: "k", attempt: 1 }]]);
});

withDatabase("at a stop without grace a fetch under way is not abandoned", async (client, queue) => {
  let onFetched;
  const isFetched = new Promise((resolve) => (onFetched = resolve));
  const connect = async (name) => {
    const connection = await connectPg(url)(name);
    const query = async (text, ...given) => {
      const rows = await connection.query(text, ...given);
      if (!text.includes("jobs.fetch_any") || rows.length === 0) return rows;
      onFetched();
      await sleep(3000); // longer than handlers have then
      return rows;
    };
    return { ...connection, query };
  };
  const worker = new Worker({ connect }, { queues: [queue], logger: quiet }).kind("k", () => "output");
  const { id } = await insert(client, "k", {}, { queue });
  await worker.start();
  await isFetched;
  await worker.stopAndCancel();
  assert.equal(await stateOf(client, id), "available");
});

withDatabase("a worker of many places asks for 10,000 jobs at a time", async (client, queue) => {
  const asked = [];
  const connect = async (name) => {
    const connection = await connectPg(url)(name);
    const query = (text, values, name) => {
      if (text.includes("jobs.fetch_any")) asked.push(values[1]);
      return connection.query(text, values, name);
    };
    return { ...connection, query };
  };
  const worker = new Worker({ connect }, { queues: [queue], logger: quiet, concurrency: 20_000 }).kind("k", () => "output");
  await worked(worker, async () => waitFor(client, [(await insert(client, "k", {}, { queue })).id]));
  assert.deepEqual([...new Set(asked)], ["10000"]);
});

withDatabase("a worker shows its library and version, and what else it is told to", async (client, queue) => {
  const { version } = JSON.parse(await readFile(new URL("../package.json", import.meta.url)));
  const shown = async (info) => {
    const worker = new Worker(url, { queues: [queue], logger: quiet, info }).kind("k", () => {});
    const sql = "select info from jobs.workers where worker = $1";
    return worked(worker, async () => (await client.query(sql, [worker.name])).rows[0].info);
  };
  const own = { library: "postgres-jobs for TypeScript", version };
  assert.deepEqual(await shown(undefined), own);
  assert.deepEqual(await shown({ commit: "a1", version: "mine" }), { ...own, commit: "a1", version: "mine" });
});

test("the package exports the same things to import and to require", async () => {
  for (const name of ["postgres-jobs", "postgres-jobs/testing", "postgres-jobs/opentelemetry"]) {
    assert.deepEqual(Object.keys(require(name)).sort(), Object.keys(await import(name)).sort());
  }
});

test("what ends a handler can be thrown or returned, in both packages", async () => {
  const { Attempt } = await import("../dist/esm/attempt.js");
  const ran = (handler) => new Attempt({ id: 1, token: 1, left: null }).run(handler);
  for (const { Snooze, Cancel } of [await import("postgres-jobs"), require("postgres-jobs")]) {
    assert.deepEqual(await ran(async () => new Snooze(1)), { do: "snooze", delay: 1 });
    assert.deepEqual(await ran(() => { throw new Cancel("c"); }), { do: "cancel", reason: "c" });
  }
});

test("an attempt times out though somebody has cancelled it before", { timeout: 60_000 }, async () => {
  const { Attempt } = await import("../dist/esm/attempt.js");
  const attempt = new Attempt({ id: 1, token: 1, left: null });
  attempt.abort("cancelled");
  const result = await new Promise((resolve) => attempt.timeOutIn(0.01, resolve));
  assert.deepEqual([result.do, result.details.type], ["fail", "timeout"]);
});

test("a timeout waits for a completion, and comes where that fails", { timeout: 60_000 }, async () => {
  const { Attempt } = await import("../dist/esm/attempt.js");
  const attempt = new Attempt({ id: 1, token: 1, left: null });
  let isFailing = false;
  const refusing = {
    async query() {
      await sleep(100); // by then it is due
      isFailing = true;
      throw new Error("refused");
    },
  };
  const result = new Promise((resolve) => attempt.timeOutIn(0.01, (result) => resolve([isFailing, result.details.type])));
  await attempt.run(async () => {
    await assert.rejects(attempt.job.complete(refusing), /refused/);
    await result;
  });
  assert.deepEqual(await result, [true, "timeout"]);
});

test("what the server refuses is told from broken connections, whatever its language", async () => {
  const { refusal } = await import("../dist/esm/connection.js");
  for (const severity of ["ERROR", "FEHLER", "ОШИБКА"]) {
    assert.equal(refusal({ severity, code: "22P05" }), "22P05");
    assert.equal(refusal({ severity, code: "40001" }), undefined);
  }
  assert.equal(refusal({ code: "EPIPE" }), undefined);
  assert.equal(refusal(new Error("closed")), undefined);
});

test("a failure without an error says so", async () => {
  const { askedFor } = await import("../dist/esm/endings.js");
  for (const ending of [new Discard(), new RetryIn(5)]) {
    const { error, details } = askedFor(ending);
    assert.deepEqual([error, details.type], ["no error was given", ending.constructor.name]);
  }
});

test("a delay below zero counts as zero, one that is no number is refused", async () => {
  const { askedFor } = await import("../dist/esm/endings.js");
  assert.deepEqual(askedFor(new Snooze(-1)), { do: "snooze", delay: 0 });
  assert.equal(askedFor(new RetryIn(-0.5, "no")).retry_in, 0);
  for (const bad of [NaN, Infinity, -Infinity, "1 hour", undefined]) {
    const told = { name: "RangeError", message: `delay must be a finite number of seconds, not ${bad}` };
    assert.throws(() => new Snooze(bad), told);
    assert.throws(() => new RetryIn(bad, "no"), told);
  }
});

test("a worker whose driver is not installed, or whose URL is invalid, does not start", { timeout: 60_000 }, async () => {
  const missing = async () => import("not-installed");
  const worker = (database) => new Worker(database, { logger: quiet }).kind("k", () => {});
  await assert.rejects(worker({ connect: missing }).start(), /not-installed/);
  await assert.rejects(worker("http:// /").start(), { code: "ERR_INVALID_URL" });
  await assert.rejects(worker({ connect: connectPostgres("postgresql://u:p%ss@127.0.0.1/d") }).start(), { name: "URIError" });
  for (const code of ["22023", "42601", "42704", "55P02"]) { // of a parameter in the URL
    const refused = async () => { throw Object.assign(new Error("no such parameter"), { severity: "FATAL", code }); };
    await assert.rejects(worker({ connect: refused }).start(), { code });
  }
});

test("a failure has the text and the trace of its causes", async () => {
  const { failure } = await import("../dist/esm/endings.js");
  const refused = await fetch(`http://127.0.0.1:${await closedPort()}/`).catch(failure);
  assert.equal(refused.details.type, "TypeError");
  assert.match(refused.error, /^fetch failed: connect ECONNREFUSED 127\.0\.0\.1:\d+$/);
  assert.match(refused.details.trace, /^TypeError: fetch failed\n(.*\n)?caused by: Error: connect ECONNREFUSED/s);
  const several = new AggregateError([new Error("first"), "second"], "all", { cause: new Error("reason") });
  assert.equal(failure(several).error, "all: reason; first; second");
  const circular = new Error("outer", { cause: new Error("inner") });
  circular.cause.cause = circular;
  assert.equal(failure(circular).error, "outer: inner");
  assert.equal(failure(new Error("no: inner", { cause: new Error("inner") })).error, "no: inner");
});

test("a call that fails is logged in one line", async () => {
  const { Link } = await import("../dist/esm/connection.js");
  const { lines, logger } = logging();
  const closed = new AbortController();
  const connect = async () => {
    if (lines.length > 0) closed.abort();
    throw new Error("no\n  connection");
  };
  await assert.rejects(new Link(connect, closed.signal, closed.signal, logger).rows("select", []), { name: "AbortError" });
  assert.deepEqual(lines, [["warn", "call failed, retrying", { error: "no connection" }]]);
});

test("pauses double up to 10 s while calls fail, whichever they are", async (t) => {
  const { Link } = await import("../dist/esm/connection.js");
  const pauses = [];
  t.mock.method(Math, "random", () => 0.5);
  t.mock.method(timers, "setTimeout", async (ms) => void pauses.push(ms));
  syncBuiltinESMExports();
  t.after(() => (t.mock.restoreAll(), syncBuiltinESMExports()));
  let isDown = true;
  const query = async () => [{ row: "1" }];
  const connect = async () => {
    if (isDown) throw new Error("refused");
    return { query, cancel: async () => {}, close: async () => {} };
  };
  const { signal } = new AbortController();
  const link = new Link(connect, signal, signal, quiet);
  const wait = () => link.rows("call jobs.wait_any()", [], 60, true);
  const fetchOnce = () => link.rows("select jobs.fetch_any()", [], 60, false, false);
  for (let times = 0; times < 5; times++) assert.deepEqual([await wait(), await fetchOnce()], [[], []]);
  assert.deepEqual(pauses.splice(0), [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
  isDown = false;
  assert.deepEqual(await fetchOnce(), [1]);
  await link.close();
  isDown = true;
  await wait();
  assert.deepEqual(pauses, [100]);
});

test("the default logger writes lines of text", async (t) => {
  const { textLogger } = await import("../dist/esm/log.js");
  const { mock } = t.mock.method(console, "warn", () => {});
  const fields = { job: 6, kind: "k", attempt: 2, max_attempts: 25, type: "ValueError", error: "nope", trace: "ValueError: nope\n    at f (x.js)" };
  textLogger.warn("attempt failed", fields);
  textLogger.warn("call failed, retrying", { error: "refused" });
  textLogger.warn("worker stopped", { worker: "w", queues: ["a"] });
  assert.deepEqual(mock.calls.map((call) => call.arguments), [
    ["attempt failed: job 6 (k), attempt 2 of 25: ValueError: nope\n    at f (x.js)"],
    ["call failed, retrying: refused"],
    ['worker stopped: worker w, queues ["a"]'],
  ]);
});

test("what is no handler, and no args, is refused at once", async () => {
  const worker = new Worker("postgresql://", { logger: quiet });
  const told = (message) => ({ name: "RangeError", message });
  assert.throws(() => worker.kind("k"), told("the handler of kind 'k' must be a function, or have a thread, not undefined"));
  assert.throws(() => worker.kind("k", { timeout: 5 }), told("the handler of kind 'k' must be a function, or have a thread, not { timeout: 5 }"));
  assert.throws(() => worker.kind("k", { thread: "none.js" }), told("the handler of kind 'k' must be in a file that exists, not 'none.js'"));
  assert.throws(() => worker.kind("k", { thread: new URL("./none.js", import.meta.url) }), /must be in a file that exists/);
  assert.throws(() => worker.otherwise(), told("the handler of every other kind must be a function, or have a thread, not undefined"));
  for (const args of [undefined, () => {}]) {
    await assert.rejects(insert({}, "k", args), { name: "TypeError", message: `args must be JSON, not ${typeof args}; pass {} for none` });
  }
});

test("options that are invalid are refused and said, without what a database holds", () => {
  const refused = (message, ...given) => assert.throws(() => new Worker(...given), { name: "RangeError", message });
  refused("database must be a URL, or have a function connect, not undefined", process.env.NOT_SET);
  refused("database must be a URL, or have a function connect, not 'object'", { host: "db", password: "secret" });
  refused("queues must be a list of names, or names with weights, not 'mail'", "postgresql://", { queues: "mail" });
  refused("info must be JSON that the database can store, not [Function: info]", "postgresql://", { info: function info() {} });
  const info = { commit: "a1" };
  refused("info must be JSON that the database can store, not <ref *1> { commit: 'a1', itself: [Circular *1] }", "postgresql://", { info: Object.assign(info, { itself: info }) });
  refused("info must be JSON that the database can store, not { load: NaN }", "postgresql://", { info: { load: NaN } });
  refused("info must be JSON that the database can store, not { text: '\\x00' }", "postgresql://", { info: { text: "\0" } });
  refused(/^info must be JSON that the database can store/, "postgresql://", { info: { text: "\ud800" } });
  new Worker("postgresql://", { info: { text: "\\u0000" }, name: "ä".repeat(127) });
  refused("unknown option queue", "postgresql://", { queue: "mail" });
  for (const lease of [0, 1e-7, 1e12, Infinity, NaN]) {
    refused(`lease must be positive and at most 31104000000, not ${lease}`, "postgresql://", { lease });
  }
  refused("middleware must be a list, not 3", "postgresql://", { middleware: 3 });
  refused("logger must have the methods info, warn, error, not {}", "postgresql://", { logger: {} });
  const long = "a".repeat(128);
  for (const [name, shown] of [["", "''"], ["\n", "'\\n'"], [long, `'${long}'`]]) {
    const rule = `must have 1 to 127 characters and no control characters, not ${shown}`;
    refused(`name ${rule}`, "postgresql://", { name });
    refused(`a name in queues ${rule}`, "postgresql://", { queues: [name] });
    assert.throws(() => new Worker("postgresql://").kind(name, () => {}), { name: "RangeError", message: `kind ${rule}` });
  }
  for (const set of [
    (worker, options) => worker.kind("k", () => {}, options),
    (worker, options) => worker.batch("k", () => {}, options),
    (worker, options) => worker.otherwise(() => {}, options),
  ]) {
    assert.throws(() => set(new Worker("postgresql://"), { timout: 3 }), { name: "RangeError", message: "unknown option timout" });
  }
});

test("a fetch that is never answered is given up", { timeout: 60_000 }, async () => {
  const { Link } = await import("../dist/esm/connection.js");
  const over = new AbortController();
  let connected = 0;
  const connect = async () => ({
    query: () => (connected++ === 0 ? new Promise(() => {}) : Promise.resolve([{ row: "1" }])),
    cancel: async () => {},
    close: async () => {},
  });
  assert.deepEqual(await new Link(connect, over.signal, over.signal, quiet).rows("select", [], 0.1), [1]);
});

test("an output that the server cannot store fails its attempt, and no other", { timeout: 60_000 }, async () => {
  const { Link } = await import("../dist/esm/connection.js");
  const { Finisher } = await import("../dist/esm/finisher.js");
  const { Reports } = await import("../dist/esm/reports.js");
  const { signal } = new AbortController();
  const failed = ["fail", "invalid_output"];
  for (const [code, message, then] of [
    ["22P05", "no such character", failed],
    ["54000", "too long", failed],
    ["XX000", "invalid memory alloc request size 1073741824", failed],
    ["XX000", "tuple concurrently updated", ["complete", undefined]],
  ]) {
    const sent = [];
    const query = async (_text, [results]) => {
      if (sent.push(...JSON.parse(results)) > 1) return [{ row: '{"ord":1,"done":true,"reason":null}' }];
      throw Object.assign(new Error(message), { severity: "ERROR", code });
    };
    const connect = async () => ({ query, cancel: async () => {}, close: async () => {} });
    await new Promise((resolve) => {
      const finisher = new Finisher(new Link(connect, signal, signal, quiet), quiet, new Reports(quiet), resolve);
      finisher.send({ job: { id: 1 }, token: 1, fields: {} }, { do: "complete", output: "[]" });
    });
    assert.deepEqual(sent.map((result) => [result.do, result.details?.type]), [["complete", undefined], then]);
  }
});

const refusals = {
  "is refused": async () => { throw Object.assign(new Error("no right"), { severity: "ERROR", code: "42501" }); },
  "cannot be sent": async () => { throw new Error("no connection"); },
  "is locked": async () => [{ row: '{"ord":1,"done":false,"reason":"locked"}' }],
};
for (const [what, refuse] of Object.entries(refusals)) {
  test(`a stop ends the pause of a result that ${what}`, { timeout: 60_000 }, async () => {
    const jobs = [{ row: '{"id":1,"token":1,"kind":"k","queue":"default","left":null}' }];
    let [answer, calls, onFifth] = [refuse, 0];
    const fifth = new Promise((resolve) => (onFifth = resolve));
    const connect = async () => {
      let endWait = () => {};
      const query = async (text) => {
        if (text.includes("pg_extension")) return about;
        if (text.includes("jobs.fetch_any")) return jobs.splice(0);
        if (text.includes("jobs.wait_any")) return new Promise((resolve) => (endWait = () => resolve([])));
        if (text.includes("jobs.worker_beat")) return [{ row: '"run"' }];
        if (text.includes("jobs.heartbeat_many")) return [{ row: "false" }];
        if (text.includes("jobs.worker_leave")) return [];
        if (++calls === 5) onFifth();
        return answer();
      };
      return { query, cancel: async () => endWait(), close: async () => {} };
    };
    const worker = new Worker({ connect }, { logger: quiet }).kind("k", () => {});
    await worker.start();
    await fifth; // the pause is of more than a second by then
    answer = async () => [{ row: '{"ord":1,"done":true,"reason":null}' }];
    const stopped = worker.stop();
    for (let turns = 0; turns < 1000; turns++) await new Promise(setImmediate);
    assert.equal(calls, 6);
    await stopped;
  });
}

test("after each wait a worker fetches at once, however often in vain", { timeout: 60_000 }, async () => {
  const late = [];
  let [isLate, worker] = [false];
  const fetchedOften = new Promise((resolve) => {
    const connect = async () => {
      let endWait = () => {};
      const query = async (text) => {
        if (text.includes("pg_extension")) return about;
        if (text.includes("worker_beat")) return [{ row: '"run"' }];
        if (text.includes("wait_any('{}'")) return new Promise((resolve) => (endWait = () => resolve([])));
        if (text.includes("fetch_any") && late.push(isLate) === 5) resolve();
        // What the worker does without a pause it does before this.
        isLate = false;
        setImmediate(() => (isLate = true));
        return [];
      };
      return { query, cancel: async () => endWait(), close: async () => {} };
    };
    worker = new Worker({ connect }, { logger: quiet }).kind("k", () => {});
  });
  await worked(worker, () => fetchedOften);
  assert.deepEqual(late.slice(0, 5), [false, false, false, false, false]);
});

test("statements are prepared until a pooler mixes up sessions", async () => {
  const { Link } = await import("../dist/esm/connection.js");
  const names = [];
  const connect = async () => ({
    async query(text, values, name) {
      names.push(name);
      if (names.length === 2) throw Object.assign(new Error(), { severity: "ERROR", code: "26000" });
      return [{ row: "1" }];
    },
    cancel: async () => {},
    close: async () => {},
  });
  const { signal } = new AbortController();
  const link = new Link(connect, signal, signal, quiet);
  for (let call = 0; call < 3; call++) assert.deepEqual(await link.rows("select", []), [1]);
  assert.match(names[0], /^jobs_\w{40}$/);
  assert.deepEqual(names, [names[0], names[0], undefined, undefined]);
});
