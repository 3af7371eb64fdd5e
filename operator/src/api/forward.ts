import { type IncomingMessage, type ServerResponse } from "node:http";
import { Agent, type RequestOptions } from "node:https";
import { type Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { serverName } from "@substrate/lib/rpc/client.ts";
import { type TlsSource } from "@substrate/lib/rpc/tls.ts";
import { createProxyServer } from "http-proxy-3";
import { refuseUpgrade } from "./upgrades.ts";
import { statusOf } from "./status-error.ts";

const connectTimeoutMs = 3_000;
const retryAfterMs = 1_000;

export interface ForwardOptions {
  tls: TlsSource;
  leading: () => boolean;
  /** `host:port` of the leader's API; undefined while nobody leads. */
  leaderAddress: () => string | undefined;
}

/** A standby's way to the operator that leads, with the caller's identity as kube-apiserver gave it. */
export class Forward {
  readonly #options: ForwardOptions;
  readonly #proxy = createProxyServer();
  readonly #upgraded = new WeakSet<Duplex>();
  readonly #open = new Set<Duplex>();

  constructor(options: ForwardOptions) {
    this.#options = options;
    this.#proxy.on("proxyRes", (answer, _incoming, response) => {
      // gone in the middle: the reader must see that what it got is not the whole
      answer.once("close", () => {
        if (!answer.complete) response.destroy();
      });
    });
    this.#proxy.on("proxyReqWs", (request, _incoming, socket) => {
      request.once("upgrade", () => this.#upgraded.add(socket));
    });
  }

  /** Whether what only the leader can do must be handed on. */
  get isNeeded(): boolean {
    return !this.#options.leading();
  }

  /** Answers from the leader, or throws SHUTTING_DOWN when there is none. */
  web(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const address = this.#address();
    return new Promise((resolve, reject) => {
      response.once("close", resolve);
      this.#proxy.web(incoming, response, this.#to(address, incoming), (error) => {
        reject(unreachable(address, error));
      });
    });
  }

  /** As `web`, for WebSockets. */
  upgrade(incoming: IncomingMessage, socket: Duplex, head: Buffer): void {
    const address = this.#address();
    this.#open.add(socket);
    socket.once("close", () => this.#open.delete(socket));
    this.#proxy.ws(incoming, socket, head, this.#to(address, incoming), (error) => {
      if (!this.#upgraded.has(socket)) refuseUpgrade(socket, statusOf(unreachable(address, error)));
    });
  }

  /** Ends all WebSockets. */
  close(): void {
    for (const socket of this.#open) socket.destroy();
  }

  #address(): string {
    const address = this.#options.leaderAddress();
    if (address === undefined) throw noLeader();
    return address;
  }

  #to(address: string, { headersDistinct }: IncomingMessage): { target: string; agent: Agent; headers: Headers } {
    // joined into one line, several groups would be one
    const identity = Object.entries(headersDistinct).filter(([name]) => name.startsWith("x-remote-"));
    const { ca, cert, key } = this.#options.tls.current;
    const agent = new LeaderAgent({ ca, cert, key, servername: serverName("operator"), keepAlive: false });
    return { target: `https://${address}`, agent, headers: Object.fromEntries(identity) };
  }
}

type Headers = Record<string, string[] | undefined>;

/** Connections to a machine that is gone fail soon. */
class LeaderAgent extends Agent {
  override createConnection(
    options: RequestOptions,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    const socket = super.createConnection(options, callback);
    if (socket instanceof TLSSocket) {
      const timer = setTimeout(() => {
        socket.destroy(new Error(`no connection within ${connectTimeoutMs} ms`));
      }, connectTimeoutMs);
      const stop = (): void => {
        clearTimeout(timer);
      };
      socket.once("secureConnect", stop).once("close", stop);
    }
    return socket;
  }
}

/** Only the leader may do what was asked, and nobody leads. */
export function noLeader(): SubstrateError {
  const message = "no operator leads now: another one takes over within seconds";
  return new SubstrateError("SHUTTING_DOWN", message, { retryAfterMs });
}

function unreachable(address: string, error: Error): SubstrateError {
  const message = `the operator that leads, ${address}, does not answer: ${error.message}`;
  return new SubstrateError("SHUTTING_DOWN", message, { cause: error, retryAfterMs });
}
