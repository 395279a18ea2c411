// The console in a browser: how each screen looks and reads, keys, live updates, and all of it
// without JavaScript.

import assert from "node:assert/strict";
import test, { after } from "node:test";
import "./actions.mjs";
import { accessibility, browser, isInOrder, logIn, open, searchAll, sql } from "./browser.mjs";
import { SCREENS } from "./screens.mjs";

after(() => browser.close());

// More findings than the overview shows at once.
sql("select jobs.pause_queue(queue, 'to be found') from generate_series(1, 4) n, jobs.insert('paused', queue => 'paused ' || n)");

/** What is wrong with a screen. The browser's own word for a page that is not there is no complaint. */
async function inspected(page, path) {
  page.complaints.length = 0;
  await page.goto(path, { waitUntil: "load" });
  await isInOrder(page);
  return [...page.complaints.filter((complaint) => !complaint.includes("404")), ...(await accessibility(page))];
}

for (const look of ["light", "dark", "narrow"]) {
  test(`every screen is in order and accessible: ${look}`, async (t) => {
    const page = await open({ look });
    for (const [name, path] of Object.entries(SCREENS)) {
      await t.test(name, async () => assert.deepEqual(await inspected(page, path), []));
    }
    await page.context().close();
  });
}

test("control: what is wrong with a page is found", async () => {
  const page = await open();
  const planted = (body, headers = {}) =>
    page.route("**/planted", (route) => route.fulfill({ contentType: "text/html", headers, body: `<!DOCTYPE html>${body}` }));
  await planted("<html lang=en><title>t</title><main><h1>h</h1><input></main>");
  assert.match(String(await inspected(page, "/planted")), /label/);
  await planted("<html lang=en><title>t</title><main><h1>h</h1><p>p</p></main><script>1</script>", {
    "content-security-policy": "default-src 'self'",
  });
  assert.match(String(await inspected(page, "/planted")), /Content Security Policy/);
  await planted("<html lang=en><title>t</title><main><h1>h</h1><pre>" + "wide ".repeat(100) + "</pre></main>");
  await assert.rejects(inspected(page, "/planted"), /wider than the window/);
  await planted("<html lang=en><title>t</title><main><p>p</p></main>");
  await assert.rejects(inspected(page, "/planted"), /one h1/);
  await page.context().close();
});

for (const look of ["light", "narrow"]) {
  test(`figures stand on the first screen, each in one line: ${look}`, async () => {
    const page = await open({ look });
    await page.goto("/");
    assert.equal(await page.locator(".finding:visible").count(), 3);
    const tiles = await page.locator(".tiles").boundingBox();
    if (look === "light") assert.ok(tiles.y + tiles.height < 800, `the figures end at ${tiles.y + tiles.height}`);
    const lines = await page.locator(".tiles a > *").evaluateAll((all) =>
      all.map((one) => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)));
    assert.deepEqual(lines.filter((count) => count > 1.5), []);
    await page.context().close();
  });
}

test("the two ends of a time stand side by side", async () => {
  const page = await open();
  for (const width of [1024, 1280, 1440, 1920]) {
    await page.setViewportSize({ width, height: 800 });
    await page.goto("/audit");
    const [from, until, last] = await Promise.all(
      [page.getByLabel("From"), page.getByLabel("Until"), page.getByRole("button", { name: "Filter" })].map((one) => one.boundingBox()),
    );
    assert.equal(from.y, until.y, `${width}`);
    assert.equal(until.y, last.y, `${width}: the button stands beside them`);
  }
  await page.context().close();
});

test("the login is accessible, lets in and out, and keeps the address", async () => {
  const page = await open({ role: null });
  await page.goto("/queues?filter=mail");
  assert.deepEqual(await accessibility(page), []);
  await page.getByLabel("Role").fill("viewer");
  await page.getByLabel("Password").fill("wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Role").fill("viewer");
  await page.getByLabel("Password").fill("viewer");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForURL("**/queues?filter=mail");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.waitForURL("**/login*");
  await page.context().close();
});

test("keys lead through the console", async () => {
  const page = await open();
  await page.goto("/jobs");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.closest("form").getAttribute("role")), "search");
  await page.keyboard.type("/?gq");
  assert.match(page.url(), /\/jobs(#main)?$/, "what is typed into a field is text");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  assert.deepEqual(await accessibility(page), []);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  for (const [key, path] of Object.entries({ q: "queues", w: "workers", p: "periodic", j: "jobs", o: "" })) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.waitForURL(`**/${path}`);
  }
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("a page shows what has changed, and leaves alone what somebody is at", async () => {
  const page = await open();
  await page.goto("/jobs?queue=live");
  const search = page.locator("form[role=search] input:visible").first();
  await search.fill("half typed");
  sql("select id from jobs.insert('live.update', queue => 'live')");
  await page.getByRole("cell", { name: "available" }).first().waitFor();
  assert.equal(await search.inputValue(), "half typed");
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("a page says so when what it shows is gone", async () => {
  const id = sql("select id from jobs.insert('live.gone', queue => 'gone')");
  const page = await open();
  await page.goto(`/jobs/${id}`);
  const notice = page.getByRole("status").filter({ hasText: "no longer exists" });
  assert.equal(await notice.count(), 0);
  sql(`select jobs.delete(${id})`);
  await notice.waitFor();
  await page.context().close();
});

test("a page goes on to refresh itself after an answer that is no stream", async () => {
  const page = await open();
  let answers = 0;
  await page.route("**/live*", (route) => (answers++ ? route.continue() : route.fulfill({ status: 502 })));
  await page.goto("/jobs?queue=proxied");
  await page.waitForResponse((response) => response.status() === 502);
  sql("select id from jobs.insert('live.update', queue => 'proxied')");
  await page.getByRole("cell", { name: "available" }).first().waitFor();
  assert.ok(answers > 1);
  await page.context().close();
});

test("a page with a form leads to the login once its session is over", async () => {
  const page = await open({ role: null });
  await logIn(page, "viewer", "viewer");
  const other = await page.context().newPage();
  await other.goto("/queues");
  await page.goto("/unique?search=1");
  await other.getByRole("button", { name: "Log out" }).click();
  await page.waitForURL("**/login?**");
  assert.equal(new URL(page.url()).searchParams.get("next"), "/unique?search=1");
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("nothing jumps when a page refreshes", async () => {
  const page = await open();
  await page.goto("/");
  await page.waitForLoadState("networkidle").catch(() => {});
  await page.evaluate(() => {
    globalThis.shifted = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) globalThis.shifted += entry.value;
    }).observe({ type: "layout-shift", buffered: false });
  });
  const size = () => page.evaluate(() => `${document.querySelectorAll("*").length} ${document.body.scrollHeight}`);
  const refresh = async () => {
    const answer = page.waitForResponse((response) => response.request().headers()["hx-request"] === "true");
    await page.evaluate(() => htmx.trigger(document.body, "refresh"));
    await answer;
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  };
  // A row or finding that comes or grows meanwhile moves what is below it.
  for (let same = 0, tries = 0; same < 3; tries++) {
    assert.ok(tries < 100, "the page never stays the same");
    const before = await size();
    await page.evaluate(() => (globalThis.shifted = 0));
    await refresh();
    if ((await size()) !== before) continue;
    assert.ok((await page.evaluate(() => globalThis.shifted)) < 0.02);
    same++;
  }
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("a theme is kept", async () => {
  const page = await open();
  const ink = () => page.evaluate(() => getComputedStyle(document.body).color);
  await page.goto("/queues");
  const light = await ink();
  await page.getByRole("button", { name: "Dark" }).click();
  await page.waitForURL("**/queues");
  const dark = await ink();
  assert.notEqual(dark, light);
  await page.goto("/workers");
  assert.equal(await ink(), dark);
  await page.context().close();
});

test("everything works without JavaScript", async () => {
  const page = await open({ role: null, javaScriptEnabled: false });
  await logIn(page, "admin", "admin");
  await page.locator(".tiles").waitFor();
  const findings = await page.locator(".finding").count();
  await page.locator("summary", { hasText: `${findings - 3} more finding` }).click();
  assert.equal(await page.locator(".finding:visible").count(), findings);
  sql("select jobs.insert('no.script', queue => 'no script', scheduled_at => now() + interval '1 day') from generate_series(1, 3)");
  await page.goto("/jobs");
  await page.getByLabel("Kind").fill("no.script");
  await page.locator("form[role=search]").getByRole("button").first().click();
  await page.waitForURL("**kind=no.script**");
  assert.equal(await page.locator("tbody tr").count(), 3);

  await page.locator("tbody tr a").first().click();
  await page.waitForURL(/\/jobs\/\d+$/);
  await page.locator("summary", { hasText: "Cancel" }).click();
  await page.getByRole("button", { name: "Cancel job" }).click();
  await page.getByRole("status").filter({ hasText: "is cancelled" }).waitFor();

  await page.goto("/jobs?kind=no.script&state=scheduled");
  await page.getByRole("link", { name: /^Delete all/ }).click();
  await searchAll(page);
  await page.getByRole("button", { name: "Delete these 2 jobs" }).click();
  await page.getByRole("status").filter({ hasText: "2 jobs" }).waitFor();
  assert.equal(sql("select count(*) from jobs.jobs where kind = 'no.script'"), "1");
  await page.context().close();
});
