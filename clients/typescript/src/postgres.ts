import { connect as connectSocket, type Socket } from "node:net";
import type { Connect } from "./connection.js";

/** Connects with the package `postgres`. The config is a URL, or the options that it takes. */
export const connectPostgres =
  (config: string | object): Connect =>
  async (name) => {
    const { default: postgres } = await import("postgres");
    const sockets: Socket[] = [];
    const options = {
      // As it does itself.
      socket({ path, host, port }: { path?: string; host: string[]; port: number[] }) {
        const at = sockets.length % host.length;
        const socket = path ? connectSocket(path) : connectSocket(port[at]!, host[at]);
        sockets.push(Object.assign(socket, { host: host[at], port: port[at] }));
        return socket;
      },
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
    // It connects with the first statement.
    await sql.unsafe("select 1").catch((error) => sql.end({ timeout: 0 }).then(() => Promise.reject(error)));
    const socket = sockets.at(-1); // later ones are of cancel requests, which it ends after 10 s
    let query: any;
    return {
      query: (text, values, name) =>
        (query = sql.unsafe<{ row: string }[]>(text, values, { prepare: name !== undefined })),
      // Its method `cancel` calls this, and drops the promise.
      cancel: async () => query?.canceller?.(query),
      async close() {
        await sql.end({ timeout: 0 });
        socket?.destroy(); // a server that is silent closes nothing
      },
    };
  };
