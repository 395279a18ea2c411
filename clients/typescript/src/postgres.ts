import { connect as connectSocket, type Socket } from "node:net";
import type { Connect } from "./connection.js";

/** Connects with the package `postgres`. The config is a URL, or the options that it takes. */
export function connectPostgres(config: string | object): Connect {
  const [url, own]: [string, any] = typeof config === "string" ? [config, {}] : ["", config];
  let turn = 0;
  return async (name) => {
    const { default: postgres } = await import("postgres");
    const { host, port, path, ssl } = postgres(url, own).options;
    const at = turn % host.length;
    const server = { host: host[at], port: port[at]! };
    let [socket, query]: [Socket?, any?] = [];
    let refusesTls = false;
    const options: any = {
      // As it does itself, which begins TLS whatever the server answers.
      socket() {
        socket = Object.assign(connectSocket(path ? { path } : server), server);
        if (ssl && ssl !== "prefer") socket.once("data", (answer) => (refusesTls = answer.toString() === "N"));
        return socket;
      },
      connect_timeout: 10,
      onnotice: () => {},
      fetch_types: false,
      ...own,
      connection: { application_name: name, ...own.connection },
      // With several hosts it would never leave a silent one, nor pause after a refusal.
      hostname: [server.host], port: [server.port], path,
      // One session, for as long as the worker needs it.
      max: 1, idle_timeout: 0, max_lifetime: null,
    };
    const sql = postgres(url, options);
    const close = async () => {
      turn = at + 1;
      await sql.end({ timeout: 0 });
      socket?.destroy(); // a silent server closes nothing
    };
    // It connects with the first statement.
    await sql.unsafe("select 1").catch(async (error) => {
      await close();
      // The next host may exist.
      if (host.length > 1 && error.code === "ENOTFOUND") delete error.code;
      throw refusesTls ? new Error("The server does not support SSL connections", { cause: error }) : error;
    });
    return {
      host: path || server.host,
      query: (text, values, name) => (query = sql.unsafe<{ row: string }[]>(text, values, { prepare: name !== undefined })),
      async cancel() {
        const session = socket;
        const sent = query?.canceller?.(query); // its method `cancel` drops the promise
        socket = session; // that of the request is not cut: it has 10 s
        await sent;
      },
      close,
    };
  };
}
