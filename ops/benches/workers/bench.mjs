// What the programs in TypeScript have in common: the shape that run.py describes.
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

export const url = process.env.DATABASE_URL;
export const payload = { user_id: 42, template: 'welcome' };

// `performance.timeOrigin` may be off by what would be a latency. A tick of the clock is exact, but
// can be seen late: of many the earliest counts.
const origin = Math.max(...Array.from({ length: 20 }, () => {
  const before = Date.now();
  let tick;
  do tick = Date.now();
  while (tick === before);
  return tick - performance.now();
}));
const now = () => (origin + performance.now()) / 1000;
const say = (object) => process.stdout.write(`${JSON.stringify(object)}\n`);

// A handler that says when the first of so many jobs began and the last one ended.
function working(milliseconds, jobs) {
  let first;
  let left = jobs;
  return async () => {
    first ??= now();
    if (milliseconds) await sleep(milliseconds);
    left -= 1;
    if (left === 0) say({ first, last: now() });
  };
}

// A handler that says when it starts.
const listening = async () => say({ started: now() });

// A handler that says when it starts, and when it is cancelled.
const cancelling = async (_job, signal) => {
  say({ started: now() });
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
  say({ cancelled: now() });
  throw signal.reason;
};

// Inserts a job for each line that comes in, and says when it was committed.
export async function send(insert) {
  for await (const _ of createInterface({ input: process.stdin })) {
    await insert();
    say({ committed: now() });
  }
}

export async function main(commands) {
  const [command, ...values] = process.argv.slice(2);
  const [concurrency, milliseconds, jobs] = values.map(Number);
  if (command === 'listen') await commands.work(concurrency, listening);
  else if (command === 'cancel') await commands.work(concurrency, cancelling);
  else if (command === 'work') await commands.work(concurrency, working(milliseconds, jobs));
  else {
    await commands[command](concurrency);
    process.exit(0);
  }
}
