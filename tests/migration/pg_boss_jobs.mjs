// Jobs of pg-boss in every state, made by its own API. DATABASE_URL says where.
//
//   node pg_boss_jobs.mjs PACKAGE fill     makes its schema and the jobs
//   node pg_boss_jobs.mjs PACKAGE finish   completes the one that was active
const [name, step] = process.argv.slice(2);
const module = await import(name);
const PgBoss = module.PgBoss ?? module.default;

const boss = new PgBoss({ connectionString: process.env.DATABASE_URL, supervise: false, schedule: false, max: 1 });
boss.on('error', (error) => { throw error; });
await boss.start();

const queue = (queueName, policy = 'standard') => boss.createQueue(queueName, { name: queueName, policy });
const send = (queueName, data, options) => boss.send(queueName, data, options);
const take = async (queueName) => (await boss.fetch(queueName))[0].id;

if (step === 'fill') {
  for (const queueName of ['mail', 'failing', 'active', 'done', 'unwanted']) await queue(queueName);
  await queue('digest', 'short');
  await queue('crawl');

  await send('mail', { n: 1 });
  await send('mail', { n: 2 }, { priority: 5 });
  await send('mail', { n: 3 }, { startAfter: new Date('2900-01-01T00:00:00Z'), expireInSeconds: 120 });
  await send('mail', { n: 4 }); // a transaction has it locked while jobs are moved
  await send('mail', null, { retryLimit: 0 });
  await send('failing', { n: 5 }, { retryLimit: 4, retryDelay: 60, retryBackoff: true });
  await boss.fail('failing', await take('failing'), { message: 'it broke' });
  await send('active', { n: 6 }, { retryLimit: 3, retryDelay: 10 });
  await take('active');
  await send('done', { n: 7 });
  await boss.complete('done', await take('done'));
  await boss.cancel('unwanted', await send('unwanted', { n: 8 }));
  await send('digest', { n: 9 }, { singletonKey: 'daily' });
  await send('crawl', { n: 10, site: 1 }, { singletonSeconds: 3600 });
} else {
  const { rows } = await boss.getDb().executeSql(`select id from pgboss.job where name = 'active' and state = 'active'`);
  await boss.complete('active', rows[0].id);
}

await boss.stop({ graceful: false });
process.exit(0);
