import { createServer, type Server } from "node:http";
import { type AddressInfo } from "node:net";
import { type Duplex } from "node:stream";
import { splitAddress } from "@substrate/lib/listen.ts";
import { Exchange, type ExchangeDeps } from "./exchange.ts";
import { Upgrade } from "./upgrade.ts";

/** Longer than the usual 60 s of load balancers, so that it is never we who close a connection they reuse. */
const keepAliveTimeoutMs = 75_000;
/** From the connection, or the first byte of its next request, to the end of the request's headers. */
const headersTimeoutMs = 60_000;

export interface HttpOptions {
  /** host:port; port 0 takes a free one. */
  listen: string;
  maxConnections: number;
}

/** Where clients come in. */
export class HttpServer {
  readonly #server: Server;
  /** Not the HTTP server's any more, but they keep it from closing. */
  readonly #upgraded = new Set<Duplex>();
  #isDraining = false;

  constructor(options: Pick<HttpOptions, "maxConnections">, deps: Omit<ExchangeDeps, "isDraining">) {
    const exchangeDeps: ExchangeDeps = { ...deps, isDraining: () => this.#isDraining };
    this.#server = createServer({
      keepAliveTimeout: keepAliveTimeoutMs,
      // An upload may take as long as it likes, and a held one waits.
      requestTimeout: 0,
      // Left out, it would be 0, too: a client that never ends its headers would hold a connection for ever.
      headersTimeout: headersTimeoutMs,
      // Offers of HTTP/2 (curl --http2) are answered in HTTP/1.1, as RFC 9113 allows.
      shouldUpgradeCallback: (request) => request.headers.upgrade?.toLowerCase() !== "h2c",
    });
    this.#server.maxConnections = options.maxConnections;
    this.#server.on("request", (request, response) => {
      new Exchange(request, response, exchangeDeps).start();
    });
    this.#server.on("upgrade", (request, socket, head) => {
      this.#upgraded.add(socket);
      socket.once("close", () => this.#upgraded.delete(socket));
      new Upgrade(request, socket, head, exchangeDeps).start();
    });
  }

  /** Answers the port. @throws when the address cannot be bound */
  async listen(address: string): Promise<number> {
    const { host, port } = splitAddress(address);
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", (error) => {
        reject(new Error(`cannot listen on ${address}: ${error.message}`, { cause: error }));
      });
      this.#server.listen(port, host, resolve);
    });
    return (this.#server.address() as AddressInfo).port;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Accepts nothing new, lets what is open or held end for at most `graceMs`, then cuts it. */
  async close(graceMs: number): Promise<void> {
    this.#isDraining = true;
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => {
        resolve();
      });
    });
    this.#server.closeIdleConnections();
    const timer = setTimeout(() => {
      this.#server.closeAllConnections();
      for (const socket of this.#upgraded) socket.destroy();
    }, graceMs);
    await closed;
    clearTimeout(timer);
  }
}
