// The blocks of README.md as modules, whose names they export.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { url } from "../database.mjs";

const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
export const blocks = [...readme.matchAll(/^```ts\n(.*?)^```/gms)].map(([, text]) => text);
export const blockWith = (part) => blocks.find((block) => block.includes(part));

// Here, so that they find the package and what it depends on.
const directory = mkdtempSync(fileURLToPath(new URL("./blocks-", import.meta.url)));
process.on("exit", () => rmSync(directory, { recursive: true }));

const compilerOptions = {
  module: ts.ModuleKind.NodeNext,
  target: ts.ScriptTarget.ES2022,
  lib: ["lib.es2022.d.ts"],
  strict: true,
  skipLibCheck: true,
  noEmit: true,
};

/** Writes a module, and returns its path. */
export function write(name, text) {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

// The module that a block imports: in both languages.
for (const name of ["worker.ts", "worker.js"]) write(name, "const given = worker;\nexport { given as worker };\n");

write("resize.js", ""); // the module of a thread

/** A block as a whole module. A line `..` in it stands for the rest of a program. */
function moduleOf(block) {
  const names = [...block.matchAll(/^(?:const|(?:async )?function) (\w+)/gm)].map(([, name]) => name);
  return `${block.replace(/^\.\.$/m, "").replace("postgresql://localhost/shop", url)}export { ${names} };\n`;
}

/** What the compiler says of each block, strictly. */
export function complaints(list) {
  const paths = list.map((block, at) => write(`${at}.ts`, moduleOf(block)));
  const given = fileURLToPath(new URL("./given.d.ts", import.meta.url));
  const program = ts.createProgram([given, ...paths], compilerOptions);
  const found = ts.getPreEmitDiagnostics(program);
  const said = (one) => ts.flattenDiagnosticMessageText(one.messageText, "\n");
  const others = found.filter(({ file }) => !paths.includes(file?.fileName)).map(said);
  if (others.length > 0) throw new Error(others.join("\n"));
  return paths.map((path) => found.filter(({ file }) => file.fileName === path).map(said));
}

let loaded = 0;

/** Runs a block, and returns what it exports. */
export function load(block) {
  const options = { ...compilerOptions, module: ts.ModuleKind.ESNext };
  const { outputText } = ts.transpileModule(moduleOf(block), { compilerOptions: options });
  return import(write(`${loaded++}.mjs`, outputText));
}
