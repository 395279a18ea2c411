// The console in a browser: how each screen looks and reads, keys, live updates, and all of it
// without JavaScript.

import assert from "node:assert/strict";
import test, { after } from "node:test";
import { accessibility, browser, isInOrder, logIn, open, sql } from "./browser.mjs";
import { SCREENS } from "./screens.mjs";

after(() => browser.close());

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
