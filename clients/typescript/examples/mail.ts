import { Worker } from "postgres-jobs";

const worker = new Worker(process.env.DATABASE_URL!, { queues: ["mail"] });

async function send(job: { args: { to: string } }) {
  console.log("mail to", job.args.to);
  return { sent: true };
}

worker.kind("email.send", send, { timeout: 30 });
await worker.run();
