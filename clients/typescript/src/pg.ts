import { once } from "node:events";
import { connect as connectSocket } from "node:net";
import type { Connect } from "./connection.js";

/** Connects with the package `pg`. The config is a URL, or what its `Client` takes. */
export const connectPg =
  (config: string | object): Connect =>
  async (name) => {
    const { default: pg } = await import("pg");
    const client: any = new pg.Client({
      application_name: name,
      connectionTimeoutMillis: 10_000,
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
      ...(typeof config === "string" ? { connectionString: config } : config),
    });
    client.on("error", () => {}); // the next statement fails with it
    await client.connect();
    return {
      host: client.host,
      query: async (text, values, name) => (await client.query({ text, values, name })).rows,
      async cancel() {
        const { host, port, processID, secretKey } = client;
        const socket = host.startsWith("/") ? connectSocket(`${host}/.s.PGSQL.${port}`) : connectSocket(port, host);
        const request = Buffer.alloc(16);
        // Length, code of a cancel request, and the session.
        [16, 80877102, processID, secretKey].forEach((number, at) => request.writeInt32BE(number, 4 * at));
        // The server closes it: Debian 12's PgBouncer fails if the client closes first. A silent
        // server does not keep the process alive.
        socket.setTimeout(10_000, () => socket.destroy()).unref();
        socket.write(request);
        socket.resume();
        await once(socket, "close");
      },
      async close() {
        const ended = client.end();
        client.connection.stream.destroy(); // a silent server closes nothing
        await ended;
      },
    };
  };
