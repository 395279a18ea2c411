// Our library in TypeScript.
import { Console } from 'node:console';
import pg from 'pg';
import { insert, Worker } from './postgres-jobs/dist/esm/index.js';
import { main, payload, send, url } from './bench.mjs';

const prefetch = Number(process.env.PREFETCH ?? 0);
const logger = new Console(process.stderr); // stdout is for figures

await main({
  async send() {
    const pool = new pg.Pool({ connectionString: url });
    await send(() => insert(pool, 'bench', payload, { queue: 'bench' }));
  },
  work: (concurrency, handle) => new Worker(url, { queues: ['bench'], concurrency, prefetch, logger }).kind('bench', handle).start(),
});
