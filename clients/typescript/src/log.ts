/**
 * A worker's logger, such as `console` or one of winston. Pino takes the fields first: pass
 * `{ info: (message, fields) => log.info(fields, message), .. }`, with all three methods.
 */
export interface Logger {
  info(message: string, fields?: object): void;
  warn(message: string, fields?: object): void;
  error(message: string, fields?: object): void;
}

export const LEVELS = ["info", "warn", "error"] as const;

/** The logger of a worker that has none: lines of text, by `console`. */
export const textLogger: Logger = {
  info: (message, fields) => console.info(asText(message, fields)),
  warn: (message, fields) => console.warn(asText(message, fields)),
  error: (message, fields) => console.error(asText(message, fields)),
};

function asText(message: string, fields: Record<string, any> = {}): string {
  const { job, kind, attempt, max_attempts, type, error, trace, ...others } = fields;
  const parts = [];
  const number = attempt === undefined ? "" : `, attempt ${attempt}${max_attempts === undefined ? "" : ` of ${max_attempts}`}`;
  if (job !== undefined) parts.push(`job ${job} (${kind})${number}`);
  const named = Object.entries(others).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  if (named.length > 0) parts.push(named.join(", "));
  if (error !== undefined) parts.push(type ? `${type}: ${error}` : error);
  // A stack begins with the text of its error.
  const stack = /(\n {4}at .*)/s.exec(trace ?? "")?.[1] ?? "";
  return [message, ...parts].join(": ") + stack;
}
