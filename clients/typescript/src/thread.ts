// The program of a thread: it runs the handler, which the module exports by default, for one job at
// a time.
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { Attempt, type Handler } from "./attempt.js";
import type { Database } from "./database.js";
import type { JobRow } from "./job.js";
import type { Answer, Question, ToThread } from "./threads.js";

const port = parentPort!;
const module = await import(workerData);
const handler: Handler<any> = module.default?.default ?? module.default;
if (typeof handler !== "function") throw new TypeError(`${workerData} has no default export that is a function`);

const isAborted = Object.getOwnPropertyDescriptor(AbortSignal.prototype, "aborted")!.get!;

let running: Attempt | undefined;
const asked = new Map<number, { resolve(): void; reject(error: Error): void }>();
let questions = 0;

function receive({ row, why, answer }: ToThread): void {
  if (row) void run(row);
  if (why) running?.abort(why);
  if (answer) answered(answer);
}

function answered({ to, error, code }: Answer): void {
  const { resolve, reject } = asked.get(to)!;
  asked.delete(to);
  if (error === undefined) resolve();
  else reject(Object.assign(new Error(error), { code }));
}

/** Asks the worker's thread. */
const ask = (asks: Omit<Question, "number">): Promise<void> =>
  new Promise((resolve, reject) => {
    asked.set(++questions, { resolve, reject });
    port.postMessage({ question: { ...asks, number: questions } satisfies Question });
  });

async function run(row: JobRow): Promise<void> {
  const attempt = new Attempt(row, (progress) => ask({ progress }));
  running = attempt;
  const { job } = attempt;
  const complete = job.complete.bind(job);
  job.complete = async (transaction: Database, output?: unknown) => {
    await ask({ isCompleted: true });
    await complete(transaction, output).catch((error) => ask({ isCompleted: false }).then(() => Promise.reject(error)));
  };
  // A handler that computes gets no messages, unless it looks at its signal.
  const aborted = () => {
    for (let message; (message = receiveMessageOnPort(port)); ) receive(message.message);
    return isAborted.call(job.signal);
  };
  Object.defineProperty(job.signal, "aborted", { get: aborted });
  const result = await attempt.run(() => handler(job, job.signal));
  running = undefined;
  port.postMessage({ result });
}

port.on("message", receive);
