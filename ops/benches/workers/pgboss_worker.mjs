// pg-boss. Each of its loops fetches a batch, waits for all of its jobs and completes them in one
// statement. Several loops keep the database busy meanwhile, each with a part of the jobs that may
// run; more loops were slower. They go on without a pause while batches are full, and LISTEN.
import { PgBoss } from 'pg-boss';
import { main, payload, send, url } from './bench.mjs';

const LOOPS = 2;

async function start() {
  const boss = new PgBoss({ connectionString: url, useListenNotify: true });
  boss.on('error', console.error);
  await boss.start();
  return boss;
}

await main({
  async setup() {
    const boss = await start();
    await boss.createQueue('bench', { notify: true });
  },
  async fill(jobs) {
    const boss = await start();
    const job = { data: payload };
    for (let left = jobs; left > 0; left -= 10000) await boss.insert('bench', Array(Math.min(left, 10000)).fill(job));
  },
  async send() {
    const boss = await start();
    await send(() => boss.send('bench', payload));
  },
  async work(concurrency, handle) {
    const boss = await start();
    const options = { batchSize: concurrency / LOOPS, localConcurrency: LOOPS, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
    await boss.work('bench', options, (jobs) => Promise.all(jobs.map(handle)));
  },
});
