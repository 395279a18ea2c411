import { existsSync } from "node:fs";
import { resolve as toPath } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker as NodeWorker } from "node:worker_threads";
import type { Handler, Reason } from "./attempt.js";
import { outcomeOf, type Result } from "./endings.js";
import { INNER, type Job, type JobRow } from "./job.js";
import { fromJson } from "./json.js";
import { THREAD } from "./place.cjs";

/** A handler in threads of its own: the default export of a module, which gets the job and its signal. */
export interface InThread {
  /**
   * A path, from the working directory, or a URL: `new URL("./resize.js", import.meta.url)`. Before
   * Node 22, the module must be JavaScript, since tsx has no effect in threads.
   */
  thread: string | URL;
}

/** What the handler in a thread asks of the worker. */
export interface Question {
  number: number;
  progress?: string;
  isCompleted?: boolean;
}

/** The answer to a question: an error, or none. */
export interface Answer {
  to: number;
  error?: string;
  code?: string;
}

/** A message to a thread has one of these. */
export interface ToThread {
  row?: JobRow;
  why?: Reason;
  answer?: Answer;
}

type FromThread = { question: Question; result?: undefined } | { question?: undefined; result: Result | null };

const LEAVING = 1000; // milliseconds that a handler has after a cancel

const toUrl = ({ thread }: InThread): string =>
  String(thread instanceof URL || thread.startsWith("file:") ? thread : pathToFileURL(toPath(thread)));

/** Whether the module is there, or the source that a loader of TypeScript takes in its place. */
export function isFound(given: InThread): boolean {
  const url = toUrl(given);
  if (!url.startsWith("file:")) return true;
  const path = fileURLToPath(url);
  return [path, path.replace(/jsx?$/, "ts"), path.replace(/jsx?$/, "tsx")].some((one) => existsSync(one));
}

/** A handler that runs that of a module, in a thread for each job that runs at once. Threads are reused. */
export function inThread(given: InThread): Handler<any> {
  const url = toUrl(given);
  const idle: NodeWorker[] = [];
  return async (job, signal) => {
    const worker = idle.pop() ?? new NodeWorker(THREAD, { workerData: url });
    worker.ref();
    const result = await work(worker, job, signal);
    worker.once("error", () => {}).once("exit", () => idle.splice(idle.indexOf(worker) >>> 0, 1));
    worker.unref();
    idle.push(worker);
    return outcomeOf(result);
  };
}

/** Runs the handler in the thread. Rejects if the thread ends. */
async function work(worker: NodeWorker, job: Job<any>, signal: AbortSignal): Promise<Result | null> {
  let late: NodeJS.Timeout | undefined;
  const onAbort = () => {
    worker.postMessage({ why: signal.reason.why } satisfies ToThread);
    // A transaction that completes the job may be under way.
    late = setTimeout(() => job.isCompleted || void worker.terminate(), LEAVING);
  };
  try {
    return await new Promise((resolve, reject) => {
      worker.removeAllListeners();
      worker.on("message", ({ question, result }: FromThread) => {
        if (!question) return resolve(result);
        void answer(job, question).then((answer) => worker.postMessage({ answer } satisfies ToThread));
      });
      worker.on("error", reject);
      worker.on("exit", (code) => reject(new Error(`the thread ended with code ${code}`)));
      const left = job.deadline && (job.deadline.getTime() - Date.now()) / 1000;
      worker.postMessage({ row: { ...job[INNER].row, left } } satisfies ToThread);
      signal.addEventListener("abort", onAbort);
      if (signal.aborted) onAbort();
    });
  } finally {
    clearTimeout(late);
    signal.removeEventListener("abort", onAbort);
    worker.removeAllListeners();
  }
}

async function answer(job: Job<any>, { number: to, progress, isCompleted }: Question): Promise<Answer> {
  try {
    if (progress !== undefined) await job.progress(fromJson(progress));
    if (isCompleted !== undefined) job[INNER].isCompleted = isCompleted;
    return { to };
  } catch (error) {
    const { message, code } = error as Error & { code?: string };
    return { to, error: message, code };
  }
}
