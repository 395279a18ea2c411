// Filters and actions as somebody uses them: by forms, links and buttons. console.test.mjs runs
// these tests, too.

import assert from "node:assert/strict";
import test from "node:test";
import { open, searchAll, sql } from "./browser.mjs";

const LATER = "scheduled_at => now() + interval '1 day'";

/** Does what leads to another page, and waits for that. */
async function leads(page, act) {
  const before = page.url();
  await Promise.all([page.waitForURL((url) => url.href !== before), act()]);
}

/** Fills in the form of a filter, by the labels of its fields, and sends it. */
async function filter(page, fields) {
  const form = page.getByRole("search");
  const more = form.locator("details:not([open]) > summary");
  if (await more.count()) await more.click();
  for (const [label, value] of Object.entries(fields)) await form.getByLabel(label).fill(value);
  await leads(page, () => form.getByRole("button", { name: "Filter" }).click());
}

/** Opens a question, gives a reason, and answers it. */
async function answer(where, question, button, reason) {
  await where.locator("summary", { hasText: new RegExp(`^${question}$`) }).click();
  const asked = where.locator(".confirm[open]");
  await asked.getByLabel("Reason").fill(reason);
  await asked.getByRole("button", { name: button }).click();
}

const said = (page, text) => page.getByRole("status").filter({ hasText: text }).waitFor();
const rows = (page) => page.locator("tbody tr");
const ids = (page) => page.locator("tbody td:first-child a").allTextContents();
const wanted = (condition) =>
  sql(`select id from jobs.jobs where ${condition} order by id desc limit 50`).split("\n").filter(Boolean);
const audited = (action, target) =>
  sql(`select role || ', ' || reason from jobs.audit where action = '${action}' and target = '${target}'`);

/** All jobs of a list that says how far it has looked. */
async function found(page) {
  const all = [];
  for (;;) {
    all.push(...(await ids(page)));
    const further = page.getByRole("link", { name: "Search further" });
    if (!(await further.count())) return all;
    await leads(page, () => further.click());
  }
}

test("each filter of the list of jobs finds the jobs that it means", async () => {
  sql(`select jobs.insert('sieve.kind', queue => 'sieve'), jobs.insert('sieve.other', queue => 'sieve', tags => '{sieve tag}'),
              jobs.insert('sieve.other', queue => 'another sieve')`);
  sql(`select jobs.fail(id, token, 'a hole in the sieve', '1 day') from jobs.fetch('another sieve', worker => 'who sieves')`);
  sql(`select jobs.insert('sieve.held', queue => 'another sieve')`);
  sql(`select from jobs.fetch('another sieve', worker => 'who sieves', lease => '1 hour')`);
  // A browser offers minutes.
  const [after, before] = sql(
    `select to_char(date_trunc('minute', min(created_at)) + n * interval '30 minutes', 'YYYY-MM-DD"T"HH24:MI')
       from jobs.jobs, generate_series(0, 1) n where kind = 'search.index' group by n order by n`,
  ).split("\n");
  const page = await open();
  for (const [fields, condition] of [
    [{ Kind: "sieve.other" }, "kind = 'sieve.other'"],
    [{ Queue: "sieve" }, "queue = 'sieve'"],
    [{ Tag: "sieve tag" }, "'sieve tag' = any(tags)"],
    [{ "Error contains": "hole in the sieve" }, "last_error like '%hole in the sieve%'"],
    [{ Worker: "who sieves" }, "worker = 'who sieves'"],
    [{ Kind: "sieve.other", Queue: "sieve" }, "kind = 'sieve.other' and queue = 'sieve'"],
    [
      { Kind: "search.index", "Inserted from": after, "Inserted before": before },
      `kind = 'search.index' and created_at >= '${after}Z' and created_at < '${before}Z'`,
    ],
  ]) {
    await page.goto("/jobs");
    await filter(page, fields);
    const expected = wanted(condition);
    assert.notEqual(expected.length, 0, condition);
    assert.deepEqual(await found(page), expected, condition);
  }
  await page.goto("/jobs");
  await leads(page, () => page.getByRole("navigation", { name: "State" }).getByRole("link", { name: "retryable" }).click());
  await filter(page, { Kind: "sieve.other" });
  const [retryable] = wanted("kind = 'sieve.other' and state = 'retryable'");
  assert.deepEqual(await found(page), [retryable], "a filter keeps the state");
  await filter(page, { ID: retryable });
  assert.equal(new URL(page.url()).pathname, `/jobs/${retryable}`);
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("a list is turned over, and back", async () => {
  sql(`select count(jobs.insert('turned', queue => 'turned', ${LATER})) from generate_series(1, 70)`);
  const page = await open();
  await page.goto("/jobs?queue=turned");
  const first = await ids(page);
  await leads(page, () => page.getByRole("link", { name: "Older" }).click());
  const second = await ids(page);
  assert.deepEqual([...first, ...second].map(Number), sql("select id from jobs.jobs where queue = 'turned' order by id desc").split("\n").map(Number));
  assert.equal(await page.getByRole("link", { name: "Older" }).count(), 0, "there are no more");
  await leads(page, () => page.getByRole("link", { name: "Newer" }).click());
  assert.deepEqual(await ids(page), first);
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("many jobs are cancelled after a look at them", async () => {
  sql(`select jobs.insert('in.bulk', queue => 'by click', ${LATER}) from generate_series(1, 12)`);
  sql(`select jobs.insert('not.in.bulk', queue => 'by click', ${LATER})`);
  const page = await open({ role: "operator" });
  await page.goto("/jobs?queue=by+click");
  await filter(page, { Kind: "in.bulk" });
  await page.getByRole("link", { name: "Cancel all" }).click();
  await searchAll(page);
  assert.equal(await page.locator(".count").innerText(), "12 jobs");
  assert.equal(await rows(page).count(), 10, "the oldest ten are shown");
  const states = () => sql("select kind, state, count(*) from jobs.jobs where queue = 'by click' group by 1, 2 order by 1");
  assert.equal(states(), "in.bulk|scheduled|12\nnot.in.bulk|scheduled|1", "a look changes nothing");
  await page.getByLabel("Reason").fill("nobody wants them");
  await page.getByRole("button", { name: "Cancel these 12 jobs" }).click();
  await said(page, "12 jobs cancelled");
  assert.equal(states(), "in.bulk|cancelled|12\nnot.in.bulk|scheduled|1");
  assert.equal(sql("select role, jobs from jobs.audit where reason = 'nobody wants them'"), "operator|12");
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("a job is cancelled, retried and deleted", async () => {
  const id = sql(`select id from jobs.insert('one.by.click', queue => 'one by click', ${LATER})`);
  const state = () => sql(`select state from jobs.jobs where id = ${id}`);
  const page = await open();
  await page.goto(`/jobs/${id}`);
  const main = page.getByRole("main");
  await answer(main, "Cancel", "Cancel job", "a mistake");
  await said(page, `Job ${id} is cancelled.`);
  assert.equal(state(), "cancelled");
  await answer(main, "Retry", "Retry job", "none after all");
  await said(page, `Job ${id} is available.`);
  assert.equal(state(), "available");
  await answer(main, "Delete", "Delete job", "it is done by hand");
  await said(page, `Job ${id} is deleted.`);
  assert.equal(state(), "");
  assert.deepEqual(
    ["cancel", "retry", "delete"].map((action) => audited(action, id)),
    ["admin, a mistake", "admin, none after all", "admin, it is done by hand"],
  );
  // A refresh that was under way has found no job.
  const others = page.complaints.filter((complaint) => !complaint.includes("404"));
  assert.deepEqual(others, []);
  await page.context().close();
});

test("queues, workers and periodic jobs are paused and go on", async () => {
  sql(`select jobs.insert('clicked', queue => 'queue to click', ${LATER})`);
  sql("select jobs.worker_beat('worker to click', '{queue to click}', 3)");
  sql("select jobs.schedule('periodic job to click', '@yearly', 'clicked.yearly', queue => 'queue to click')");
  const page = await open();
  for (const [path, field, name, there, [pause, pausing, paused], [resume, resuming, resumed], is] of [
    [
      "/queues", "Name", "queue to click", "paused",
      ["Pause", "Pause queue", "is paused."], ["Resume", "Resume queue", "is resumed."],
      "select paused from jobs.queues where queue = 'queue to click'",
    ],
    [
      "/workers", "Name", "worker to click", "told to be quiet",
      ["Quiet", "Quiet worker", "is told to be quiet."], ["Resume", "Resume worker", "is resumed."],
      "select command is not null from jobs.workers where worker = 'worker to click'",
    ],
    [
      "/periodic", "Name or kind", "periodic job to click", "paused",
      ["Pause", "Pause schedule", "is paused."], ["Resume", "Resume schedule", "is resumed."],
      "select paused_at is not null from jobs.periodic where name = 'periodic job to click'",
    ],
  ]) {
    await page.goto(path);
    await filter(page, { [field]: name });
    const row = rows(page);
    assert.equal(await row.count(), 1, `${path} shows what is filtered`);
    await answer(row, pause, pausing, "a new disk");
    await said(page, `${name} ${paused}`);
    assert.equal(sql(is), "t");
    await row.getByText(there).first().waitFor();
    await row.getByText("a new disk").waitFor();
    await answer(row, resume, resuming, "it is there");
    await said(page, `${name} ${resumed}`);
    assert.equal(sql(is), "f");
  }
  await answer(rows(page), "Run now", "Insert job", "to see it");
  await said(page, "of periodic job to click inserted.");
  const id = sql("select id from jobs.jobs where kind = 'clicked.yearly'");
  assert.equal(new URL(page.url()).pathname, `/jobs/${id}`);
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("the audit is filtered", async () => {
  sql(`set role operator; select jobs.pause_queue('audited', 'one'), jobs.resume_queue('audited', 'two'), jobs.pause_queue('audited too', 'three')`);
  sql(`set role admin; select jobs.resume_queue('audited too', 'four')`);
  const page = await open();
  for (const [fields, reasons] of [
    [{ Target: "audited" }, ["one", "two"]],
    [{ Target: "audited", Action: "pause_queue" }, ["one"]],
    [{ Target: "audited too", Role: "admin" }, ["four"]],
    [{ Target: "audited", From: "2020-01-01T00:00", Until: "2100-01-01T00:00" }, ["one", "two"]],
    [{ Target: "audited", From: "2100-01-01T00:00" }, []],
    [{ Target: "audited", Until: "2020-01-01T00:00" }, []],
  ]) {
    await page.goto("/audit");
    await filter(page, fields);
    const shown = await page.locator("tbody td.wide > p").allTextContents();
    assert.deepEqual(shown.sort(), reasons, JSON.stringify(fields));
  }
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});
