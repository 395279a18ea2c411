// Our library in TypeScript.
import pg from 'pg';
import { insert, Worker } from './postgres-jobs/dist/esm/index.js';
import { main, payload, send, url } from './bench.mjs';

await main({
  async send() {
    const pool = new pg.Pool({ connectionString: url });
    await send(() => insert(pool, 'bench', payload, { queue: 'bench' }));
  },
  work: (concurrency, handle) => new Worker(url, { queues: ['bench'], concurrency }).kind('bench', handle).start(),
});
