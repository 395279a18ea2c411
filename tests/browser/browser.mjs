// A browser at the console, and what every page of it must be like.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import axe from "axe-core";
import { chromium } from "playwright-core";

const { CONSOLE_URL, JOBS_COMPANY_URL, PSQL = "psql", CHROMIUM = "/usr/bin/chromium" } = process.env;

export const browser = await chromium.launch({
  executablePath: CHROMIUM,
  // As root there is no sandbox; a container may have little shared memory.
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
});

/** What a statement answers to a superuser. */
export function sql(statement) {
  const url = JOBS_COMPANY_URL.replace("//", "//postgres:postgres@");
  return execFileSync(PSQL, ["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", url, "-c", statement], { encoding: "utf8" }).trim();
}

export const LOOKS = {
  light: { colorScheme: "light", viewport: { width: 1280, height: 800 } },
  dark: { colorScheme: "dark", viewport: { width: 1280, height: 800 } },
  narrow: { colorScheme: "light", viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true },
};
const sessions = new Map();

/**
 * A page of somebody who is logged in as the role. What the browser complains of ends up in
 * `page.complaints`: errors of scripts, violations of the policy, files that are not there.
 */
export async function open({ role = "admin", look = "light", ...options } = {}) {
  const context = await browser.newContext({
    baseURL: CONSOLE_URL,
    reducedMotion: "reduce",
    locale: "en-GB",
    timezoneId: "UTC",
    storageState: role ? await session(role) : undefined,
    ...LOOKS[look],
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") page.complaints.push(`${message.text()} ${message.location().url}`);
  });
  return page;
}

/** Each role logs in once. */
async function session(role) {
  if (!sessions.has(role)) {
    const page = await open({ role: null });
    await logIn(page, role, role);
    sessions.set(role, await page.context().storageState());
    await page.context().close();
  }
  return sessions.get(role);
}

export async function logIn(page, role, password) {
  await page.goto("/login");
  await page.getByLabel("Role").fill(role);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
}

/** Has the preview of a bulk action show all jobs, if the time to find them was over. */
export async function searchAll(page) {
  await page.waitForURL("**/bulk?**");
  const all = page.getByRole("link", { name: "Search all" });
  if (!(await all.count())) return;
  await all.click();
  await page.waitForURL("**whole=yes**");
}

/** What axe finds, as lines that say where. */
export async function accessibility(page) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`));
}

/** One heading above the others, a title, nothing wider than the window. */
export async function isInOrder(page) {
  const found = await page.evaluate(() => ({
    title: document.title,
    headings: [...document.querySelectorAll("main h1")].length,
    inline: document.querySelectorAll("[style], script:not([src]), style").length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    widest: [...document.querySelectorAll("body *")]
      .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
      .map((element) => `${element.tagName}.${element.className}`)
      .slice(0, 5),
  }));
  assert.match(found.title, /\S/);
  assert.equal(found.headings, 1, "a page has one h1");
  assert.equal(found.overflow, 0, `the page is wider than the window: ${found.widest}`);
}
