import { type Server } from "node:http";
import { type AddressInfo } from "node:net";

/** A server that listens. */
export interface Listening {
  port: number;
  /** Ends open connections, too. */
  close(): Promise<void>;
}

/**
 * Binds an HTTP(S) server.
 * @param address `host:port` or `[v6]:port`; port 0 takes a free one.
 * @param title of the server, for the message when the address cannot be bound.
 */
export async function listen(server: Server, address: string, title: string): Promise<Listening> {
  const { host, port } = splitAddress(address);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => {
      reject(new Error(`${title}: cannot listen on ${address}: ${error.message}`, { cause: error }));
    });
    server.listen(port, host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          resolve();
        });
        server.closeAllConnections();
      }),
  };
}

/** `host:port` or `[v6]:port` apart; throws with the text that was given. */
export function splitAddress(address: string): { host: string; port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(address);
  const port = Number(match?.[3]);
  const host = match?.[1] ?? match?.[2];
  if (host === undefined || port > 65_535)
    throw new Error(`"${address}" is not an address; write host:port, for instance 127.0.0.1:9090`);
  return { host, port };
}
