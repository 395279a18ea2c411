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
    client.on("error", () => {}); // the next statement fails, and says so
    await client.connect();
    return {
      query: async (text, values, name) => (await client.query({ text, values, name })).rows,
      async cancel() {
        const { host, port, processID, secretKey } = client;
        const socket = host.startsWith("/") ? connectSocket(`${host}/.s.PGSQL.${port}`) : connectSocket(port, host);
        const request = Buffer.alloc(16);
        // Length, code of a cancel request, whose statement it is.
        [16, 80877102, processID, secretKey].forEach((number, at) => request.writeInt32BE(number, 4 * at));
        // The server closes it. Debian 12's PgBouncer ends with an error where we do so before. One
        // that is silent keeps no process.
        socket.setTimeout(10_000, () => socket.destroy()).unref();
        socket.write(request);
        socket.resume();
        await once(socket, "close");
      },
      async close() {
        const ended = client.end();
        client.connection.stream.destroy(); // a server that is silent closes nothing
        await ended;
      },
    };
  };
