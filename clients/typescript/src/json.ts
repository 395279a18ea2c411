import { randomUUID } from "node:crypto";

// A jsonb has at most 256 MB, and no text that is sent may be longer.
const LIMIT = 2 ** 28;
const MARK = `bigint:${randomUUID()}:`;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");

/** The JSON text of a value, with bigints as numbers. Throws if the value has no JSON form. */
export function toJson(value: unknown): string {
  let marked = false;
  const text: string | undefined = JSON.stringify(value, (_key, item: unknown) => {
    if (typeof item === "number" && !Number.isFinite(item)) throw new TypeError(`${item} has no JSON form`);
    if (typeof item !== "bigint") return item;
    marked = true;
    return `${MARK}${item}`;
  });
  if (text === undefined) throw new TypeError(`${typeof value} has no JSON form`);
  if (text.length >= LIMIT) throw new RangeError(`JSON of ${text.length} characters is too long`);
  return marked ? text.replace(MARKED, "$1") : text;
}

// Tokens have 16 digits but stay below 2^53. Written out, since V8 is ten times slower with \d{17}.
const UNSAFE = new RegExp(`9${"\\d".repeat(15)}|${"\\d".repeat(17)}`);

/** The value of a JSON text. Integers that a number cannot represent exactly become bigints. */
export function fromJson(text: string): any {
  if (!UNSAFE.test(text)) return JSON.parse(text);
  const token = /"|-?\d[\d.eE+-]*/g;
  let [exact, copied] = ["", 0];
  for (let found; (found = token.exec(text)); ) {
    const [number] = found;
    if (number === '"') token.lastIndex = endOfString(text, token.lastIndex);
    else if (/^-?\d{16,}$/.test(number) && !Number.isSafeInteger(Number(number))) {
      // No text in the database has a NUL, so this mark is unique.
      exact += `${text.slice(copied, found.index)}"\\u0000${number}"`;
      copied = token.lastIndex;
    }
  }
  return copied ? restored({ value: JSON.parse(exact + text.slice(copied)) }).value : JSON.parse(text);
}

function endOfString(text: string, from: number): number {
  for (;;) {
    const quote = text.indexOf('"', from);
    let escape = quote;
    while (text[escape - 1] === "\\") escape--;
    if ((quote - escape) % 2 === 0) return quote + 1;
    from = quote + 1;
  }
}

// Without recursion: args can be nested deeper than the stack.
function restored(root: Record<string, any>): Record<string, any> {
  const parents = [root];
  for (let parent; (parent = parents.pop()); ) {
    for (const [key, value] of Object.entries(parent)) {
      if (typeof value === "string" && value.startsWith("\0")) parent[key] = BigInt(value.slice(1));
      else if (typeof value === "object" && value) parents.push(value);
    }
  }
  return root;
}

/** A Postgres array as text. */
export const toArray = (values: readonly (string | number)[]): string =>
  `{${values.map((value) => `"${String(value).replace(/["\\]/g, "\\$&")}"`).join(",")}}`;
