// The screens of the console, in a database with the company of clients/examples/company.

import { sql } from "./browser.mjs";

const job = (condition) => sql(`select max(id) from jobs.jobs where ${condition}`);
const key = sql("select key from jobs.unique_claims limit 1");

export const SCREENS = {
  overview: "/",
  jobs: "/jobs",
  "jobs of a filter": "/jobs?state=discarded&kind=payment.capture",
  "no jobs": "/jobs?kind=there.is.none",
  job: `/jobs/${job("kind = 'payment.capture' and state = 'discarded'")}`,
  "a job that runs": `/jobs/${job("queue = 'annual' and state = 'running'")}`,
  "a job with odd texts": `/jobs/${job("kind = '<script>alert(1)</script>'")}`,
  "a job with a thousand errors": `/jobs/${job("kind = 'odd.errors'")}`,
  "edit a job": `/jobs/${job("kind = 'accounts.export'")}/edit`,
  bulk: "/bulk?do=retry&kind=payment.capture&state=discarded",
  failures: "/failures?since=1d",
  queues: "/queues",
  queue: "/queue?name=exports",
  limits: "/limits",
  limit: "/limit?name=partners",
  order: "/order?name=exports",
  workers: "/workers",
  worker: "/worker?name=mailer-2",
  periodic: "/periodic",
  "a periodic job": "/periodic/job?name=stock",
  unique: `/unique?search=${key}`,
  audit: "/audit",
  maintenance: "/maintenance",
  "nothing there": "/nothing",
};
