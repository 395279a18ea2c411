// R3: pg-boss, Graphile Worker and pgmq as their users use them, against jobs through the same
// driver with as many connections. Prints lines "case<TAB>jobs<TAB>peer" of jobs a second, a line a
// round. Run by cases.sh, which installs the packages.
//
//   node peers.mjs MODULES SECONDS JOBS ROUNDS
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';

const [modules, seconds, count, rounds] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const require = createRequire(join(modules, 'package.json'));
const { Pool } = require('pg');
const PgBoss = require('pg-boss');
const { makeWorkerUtils, run } = require('graphile-worker');

const CLIENTS = 8;
const options = { host: process.env.PGHOST, user: 'postgres', database: process.env.PGDATABASE, max: CLIENTS };
const pool = new Pool(options);
const boss = new PgBoss({ ...options, supervise: false, schedule: false });
await boss.start();
await boss.createQueue('bench', { name: 'bench', policy: 'standard' });
await boss.createQueue('short', { name: 'short', policy: 'short' }); // a key once among what waits
const utils = await makeWorkerUtils({ pgPool: pool });
await utils.migrate();
await pool.query(`select pgmq.create('bench')`);

const payload = (n) => ({ user_id: n, template: 'welcome' });
const numbers = (n) => Array.from({ length: n }, (_, i) => i);
const now = () => performance.now() / 1000;

// As often as it can be done in the time, by as many at once as there are connections; how many a
// second.
async function often(work) {
  const end = now() + seconds;
  let done = 0;
  await Promise.all(numbers(CLIENTS).map(async () => {
    while (now() < end) { await work(); done += 1; }
  }));
  return done / seconds;
}

// How many of `count` jobs a second.
async function all(work) {
  const begun = now();
  await work();
  return count / (now() - begun);
}

async function drain(batch) {
  await Promise.all(numbers(CLIENTS).map(async () => { while (await batch()); }));
}

const one = {
  jobs: () => pool.query({ name: 'one', text: `select id from jobs.insert('bench', $1, '{"by_args": true}', queue => 'one')`, values: [payload(randomUUID())] }),
  boss: () => boss.send('short', payload(1), { singletonKey: randomUUID() }),
  graphile: () => utils.addJob('one', payload(1), { jobKey: randomUUID() }),
};
const plain = {
  jobs: () => pool.query({ name: 'plain', text: `select id from jobs.insert('bench', $1, queue => 'one')`, values: [payload(1)] }),
  pgmq: () => pool.query({ name: 'send', text: `select send from pgmq.send('bench', $1::jsonb)`, values: [payload(1)] }),
};
const bulk = {
  jobs: (queue) => pool.query({ text: `select count(*) from jobs.insert_batch('bench', $1::jsonb[], queue => $2)`, values: [numbers(10000).map(payload), queue] }),
  boss: () => boss.insert(numbers(10000).map((n) => ({ name: 'bench', data: payload(n) }))),
  graphile: () => pool.query({ text: `select count(*) from graphile_worker.add_jobs(array(select json_populate_record(null::graphile_worker.job_spec,
    json_build_object('identifier', 'bench', 'payload', payload)) from json_array_elements($1::json) payload))`, values: [JSON.stringify(numbers(10000).map(payload))] }),
  pgmq: () => pool.query({ text: `select count(*) from pgmq.send_batch('bench', $1::jsonb[])`, values: [numbers(10000).map(payload)] }),
};
const fill = async (insert) => { for (let n = 0; n < count; n += 10000) await insert(); };

async function completeJobs() {
  await drain(async () => {
    const { rows } = await pool.query({ name: 'fetch', text: `select * from jobs.fetch('bulk', 100)` });
    if (!rows.length) return false;
    await pool.query({ name: 'complete', text: 'select count(*) from jobs.complete_many($1, $2)', values: [rows.map((job) => job.id), rows.map((job) => job.token)] });
    return true;
  });
}
async function completePgmq() {
  await drain(async () => {
    const { rows } = await pool.query({ name: 'read', text: `select * from pgmq.read('bench', 60, 100)` });
    if (!rows.length) return false;
    await pool.query({ name: 'archive', text: `select count(*) from pgmq.archive('bench', $1::bigint[])`, values: [rows.map((message) => message.msg_id)] });
    return true;
  });
}
async function completeBoss() {
  await drain(async () => {
    const jobs = await boss.fetch('bench', { batchSize: 100 });
    if (!jobs?.length) return false;
    await boss.complete('bench', jobs.map((job) => job.id));
    return true;
  });
}
async function completeGraphile() {
  let left = count;
  let over;
  const done = new Promise((resolve) => { over = resolve; });
  const runner = await run({
    pgPool: pool, concurrency: CLIENTS * 4, noHandleSignals: true, pollInterval: 100,
    taskList: { bench: async () => { if ((left -= 1) === 0) over(); } },
    preset: { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
    logger: new (require('graphile-worker').Logger)(() => () => {}),
  });
  await done;
  await runner.stop();
}

// Measures ours and each peer's, the one that goes first changing; a line for each peer.
async function compare(round, ours, peers) {
  const figures = {};
  const all = [['jobs', ours], ...Object.entries(peers)];
  if (round % 2) all.reverse();
  for (const [name, measure] of all) figures[name] = await measure();
  for (const name of Object.keys(peers)) console.log([name, figures.jobs.toFixed(0), figures[name].toFixed(0)].join('\t'));
}

for (let round = 0; round < rounds; round += 1) {
  await compare(round, () => often(one.jobs), {
    'unique insert, against pg-boss (policy short)': () => often(one.boss),
    'unique insert, against Graphile Worker': () => often(one.graphile),
  });
  await compare(round, () => often(plain.jobs), { 'insert, against pgmq': () => often(plain.pgmq) });
  await boss.purgeQueue('short');
  await pool.query('delete from graphile_worker._private_jobs');
  await pool.query(`select pgmq.purge_queue('bench')`);

  await compare(round, () => all(() => fill(() => bulk.jobs('bulk'))), {
    'insert 10,000 at once, against pg-boss': () => all(() => fill(bulk.boss)),
    'insert 10,000 at once, against Graphile Worker': () => all(() => fill(bulk.graphile)),
    'insert 10,000 at once, against pgmq': () => all(() => fill(bulk.pgmq)),
  });
  await pool.query('analyze');
  await compare(round, () => all(completeJobs), {
    'fetch + complete in batches of 100, against pg-boss': () => all(completeBoss),
    'work through all jobs, against Graphile Worker in batches of 500': () => all(completeGraphile),
    'fetch + complete in batches of 100, against pgmq (read + archive)': () => all(completePgmq),
  });
}
await boss.stop({ graceful: false });
await utils.release();
await pool.end();
process.exit(0);
