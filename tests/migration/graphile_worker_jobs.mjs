// Jobs of Graphile Worker in every state, made by its own API. DATABASE_URL says where. A worker of
// it has one of them and finishes it when standard input ends.
import pg from 'pg';
import graphile from 'graphile-worker';

const { makeWorkerUtils, runOnce, run, Logger } = graphile;
const pgPool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 4 });
const logger = new Logger(() => () => {});
const utils = await makeWorkerUtils({ pgPool, logger });
await utils.migrate();

await utils.addJob('mail', { n: 1 });
await utils.addJob('mail', { n: 2 }, { priority: -5 });
await utils.addJob('mail', { n: 3 }, { runAt: new Date('2900-01-01T00:00:00Z'), maxAttempts: 3, flags: ['slow', 'remote'] });
await utils.addJob('mail', { n: 4 }); // a transaction has it locked while jobs are moved
await utils.addJob('failing', { n: 5 }, { maxAttempts: 5 });
await utils.addJob('hopeless', { n: 6 }, { maxAttempts: 1 });
await runOnce({ pgPool, logger, noHandleSignals: true, taskList: { failing: () => { throw new Error('it broke'); }, hopeless: () => { throw new Error('it broke'); } } });
await utils.addJob('import', { n: 7 }, { queueName: 'serial' });
await utils.addJob('import', { n: 8 }, { queueName: 'serial' });
await utils.addJob('report', { n: 9 }, { jobKey: 'report-1' });
await utils.addJob('endless', { n: 10 });

const told = new Promise((resolve) => { process.stdin.on('end', resolve).resume(); });
const runner = await run({ pgPool, logger, noHandleSignals: true, pollInterval: 100, taskList: { endless: () => told } });
await told;
await runner.stop();
await utils.release();
await pgPool.end();
