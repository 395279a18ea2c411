// Takes a picture of each screen in each look, and writes docs/console-screens.md with them.
// ./dev pictures calls it with the directory docs/.

import { mkdirSync, writeFileSync } from "node:fs";
import { browser, LOOKS, open } from "./browser.mjs";
import { SCREENS } from "./screens.mjs";

const docs = process.argv[2];
/** What is looked at for what tests put there, and not for its screen. */
const TESTED_ONLY = ["a job with odd texts", "a job with a thousand errors"];
const written = [
  `# The console's screens

Each screen of the [console](console.md), light, dark and 360 pixels wide. The company whose jobs it
shows is made up. \`./dev pictures\` takes the pictures and writes this page.`,
];

mkdirSync(`${docs}/console`, { recursive: true });
for (const screen of Object.keys(SCREENS).filter((name) => !TESTED_ONLY.includes(name))) {
  const name = screen.replaceAll(" ", "-");
  const lines = [`## ${screen[0].toUpperCase()}${screen.slice(1)}`, ""];
  for (const look of Object.keys(LOOKS)) {
    const page = await open({ look });
    await page.goto(SCREENS[screen]);
    await page.waitForTimeout(300); // charts are drawn after the page has come
    const file = `console/${name}${look === "light" ? "" : `-${look}`}.png`;
    await page.screenshot({ path: `${docs}/${file}` });
    await page.context().close();
    lines.push(`![${screen}, ${look}](${file})`);
  }
  written.push(lines.join("\n"));
}
await browser.close();
writeFileSync(`${docs}/console-screens.md`, `${written.join("\n\n")}\n`);
