import type { Connect } from "./connection.js";

/** Connects with the package `postgres`. The config is a URL, or the options that it takes. */
export const connectPostgres =
  (config: string | object): Connect =>
  async (name) => {
    const { default: postgres } = await import("postgres");
    const options = {
      connect_timeout: 10,
      onnotice: () => {},
      fetch_types: false,
      ...(typeof config === "string" ? {} : config),
      connection: { application_name: name, ...(config as any).connection },
      // One session, for as long as the worker wants it.
      max: 1,
      idle_timeout: 0,
      max_lifetime: null,
    };
    const sql = typeof config === "string" ? postgres(config, options) : postgres(options);
    let query: { cancel(): void } | undefined;
    return {
      query: (text, values, name) =>
        (query = sql.unsafe<{ row: string }[]>(text, values, { prepare: name !== undefined })),
      cancel: async () => query?.cancel(),
      close: () => sql.end({ timeout: 0 }),
    };
  };
