// Graphile Worker, as its page about performance has it: a local queue of 500 jobs, completions
// together, and a connection for each job that runs and one more.
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
          localQueue: { size: 500 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
  },
});
