// Takes the pictures of docs/console.md. ./dev pictures calls it with the directory for them.

import { browser, open } from "./browser.mjs";
import { SCREENS } from "./screens.mjs";

const PICTURES = [
  ["overview", "light"],
  ["jobs", "light"],
  ["jobs", "narrow"],
  ["job", "light"],
  ["bulk", "light"],
  ["failures", "light"],
  ["queues", "light"],
  ["workers", "dark"],
  ["periodic", "light"],
];

for (const [screen, look] of PICTURES) {
  const page = await open({ look, role: "operator" });
  await page.goto(SCREENS[screen]);
  await page.waitForTimeout(300); // charts are drawn after the page has come
  await page.screenshot({ path: `${process.argv[2]}/console-${screen}${look === "light" ? "" : `-${look}`}.png` });
  await page.context().close();
}
await browser.close();
