// What the blocks of README.md take for given.
import type { Client } from "pg";
import type * as jobs from "postgres-jobs";

declare global {
  type Job<Args> = jobs.Job<Args>;
  type BatchJob<Args> = jobs.BatchJob<Args>;
  type Middleware = jobs.Middleware;
  const Worker: typeof jobs.Worker;
  const Producer: typeof jobs.Producer;
  const Discard: typeof jobs.Discard;
  const connectPg: typeof jobs.connectPg;
  const connectPostgres: typeof jobs.connectPostgres;
  const assert: typeof import("node:assert/strict");
  const test: (name: string, run: () => Promise<void>) => void;

  const url: string;
  const urls: string[];
  const pools: Client[];
  const ca: string;
  const client: Client;
  const worker: jobs.Worker;
  const order: number;
  const customer: string;
  const mailer: { send(to: string): Promise<string> };
  const metrics: { record(kind: string, milliseconds: number): void; count(kind: string, error: unknown): void };
  const sentry: { captureException(error: unknown, hint: object): void };
  function store(rows: string[], signal: AbortSignal): Promise<boolean[]>;
  function placeOrder(client: Client, customer: string): Promise<void>;
  function tenant(): string;
}
