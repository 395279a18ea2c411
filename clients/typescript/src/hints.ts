/** The oldest version of the extension that this library works with. */
export const NEEDS = "0.1.0";

const NO_EXTENSION = "Check the database, or run CREATE EXTENSION jobs in it.";
const OLD = "Run ALTER EXTENSION jobs UPDATE, after installing the version that the library needs on the server.";
const grant = (what: string, role?: string) => `Ask an administrator to run SELECT jobs.grant_${what}('${role ?? "ROLE"}').`;

/** What to do about an error that a call raised because of how the database is set up. */
function hintFor(code: string | undefined, rights: string, role?: string): string | undefined {
  if (code === "3F000" || code === "42P01") return NO_EXTENSION;
  if (code === "42883") return OLD;
  return code === "42501" ? grant(rights, role) : undefined;
}

/** The error with a hint, as its member and at the end of its message. */
export function hinted(error: any, hint: string | undefined): unknown {
  if (hint === undefined || error.message.includes(hint)) return error;
  const { message, stack } = error;
  error.hint ??= hint;
  error.message = `${message}. ${hint}`;
  error.stack = stack?.replace(message, () => error.message);
  return error;
}

/** The SQLSTATE of an error. Prisma has that of the driver in `meta`, Drizzle as the cause. */
export const stateOf = ({ code, cause, meta }: any): string | undefined =>
  meta?.code ?? meta?.driverAdapterError?.cause?.originalCode ?? code ?? cause?.code;

/** The error of a producer's call, with what to do. */
export const ofProducer = (error: any, rights: string, role?: string): unknown =>
  hinted(error, hintFor(stateOf(error ?? {}), rights, role));

/** What to do about an error of a connection that has never worked; undefined if trying again can help. */
export function firstHint({ code, message }: any, role?: string): string | undefined {
  if (code === "ENOTFOUND") return "Check the host in the URL.";
  if (code === "3D000") return "Check the database in the URL.";
  if (code === "28000" || code === "28P01" || /client password must be/.test(message)) return "Check the user and the password in the URL.";
  if (/server does not support SSL/.test(message)) return "Add ?sslmode=disable to the URL.";
  return hintFor(code, "worker", role);
}

/** What a worker is told of the database at its start. */
export interface About {
  extension: string | null;
  database: string;
  user: string;
}

export const ABOUT = `select json_build_object('database', current_database(), 'user', session_user,
  'extension', (select extversion from pg_catalog.pg_extension where extname = 'jobs'))::text as row`;

/** Throws if the extension is missing or too old. */
export function checkExtension({ extension, database }: About): void {
  if (extension === null) throw hinted(new Error(`the database "${database}" does not have the extension jobs`), NO_EXTENSION);
  const parts = (version: string) => version.split(/[.-]/).map(Number);
  const [has, needs] = [parts(extension), parts(NEEDS)];
  const at = needs.findIndex((part, at) => part !== has[at]);
  if (at < 0 || (has[at] ?? 0) > needs[at]!) return;
  const message = `the extension jobs has version ${extension}, and this library needs ${NEEDS}`;
  throw hinted(new Error(message), "Run ALTER EXTENSION jobs UPDATE, after installing it on the server.");
}
