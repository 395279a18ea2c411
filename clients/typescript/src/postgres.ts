import { connect as connectSocket, type Socket } from "node:net";
import type { Connect } from "./connection.js";

/** Connects with the package `postgres`. The config is a URL, or the options that it takes. */
export const connectPostgres =
  (config: string | object): Connect =>
  async (name) => {
    const { default: postgres } = await import("postgres");
    const sockets = new Set<Socket>();
    const options = {
      // As it does itself. A server that is silent closes none, so they are destroyed.
      socket({ path, host, port }: { path?: string; host: string[]; port: number[] }) {
        const at = sockets.size % host.length;
        const socket = path ? connectSocket(path) : connectSocket(port[at]!, host[at]);
        sockets.add(socket);
        return Object.assign(socket, { host: host[at], port: port[at] });
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
    const close = async () => {
      await sql.end({ timeout: 0 });
      for (const socket of sockets) socket.destroy();
    };
    // It connects with the first statement.
    await sql.unsafe("select 1").catch((error) => close().then(() => Promise.reject(error)));
    let query: any;
    return {
      close,
      query: (text, values, name) =>
        (query = sql.unsafe<{ row: string }[]>(text, values, { prepare: name !== undefined })),
      // Its method `cancel` calls this, and drops the promise.
      cancel: async () => query?.canceller?.(query),
    };
  };
