// Graphile Worker, as its page about performance has it: a local queue, completions together, and a
// connection for each job that runs and one more. LOCAL_QUEUE is the queue's size, 500 on that
// page. Without it there is none, which is the default.
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { main, payload, send, url } from './bench.mjs';

const logger = new Logger(() => () => {});

await main({
  async setup() {
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    await utils.migrate();
  },
  async fill(jobs) {
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    await utils.addJobs(Array(jobs).fill({ identifier: 'bench', payload }));
  },
  async send() {
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    await send(() => utils.addJob('bench', payload));
  },
  async work(concurrency, handle) {
    await run({
      taskList: { bench: handle },
      noHandleSignals: true,
      preset: {
        worker: {
          connectionString: url,
          logger,
          concurrentJobs: concurrency,
          maxPoolSize: concurrency + 1,
          localQueue: { size: Number(process.env.LOCAL_QUEUE ?? -1) },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
  },
});
