// Our library in TypeScript.
import { Worker } from './postgres-jobs/dist/esm/index.js';
import { main, url } from './bench.mjs';

await main({
  work: (concurrency, handle) => new Worker(url, { queues: ['bench'], concurrency }).kind('bench', handle).start(),
});
