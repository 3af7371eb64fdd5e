import { type Endpoint } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { Pool } from "undici";
import { UpstreamClient } from "./upstream-client.ts";

export interface UpstreamOptions {
  /** How long a running actor may take until its response's headers; then 504. */
  headersTimeoutMs: number;
  connectTimeoutMs: number;
}

/** What is under way to an upstream. */
export interface OpenOnUpstream {
  /** Nobody answers there any more: it is not open from now on, whatever its connections say. */
  cut(): void;
}

/** One port of one running actor, with the connections that this router keeps to it. */
export class Upstream {
  readonly portName: string;
  readonly containerPort: number;
  readonly address: string;
  readonly port: number;
  readonly origin: string;
  readonly #options: UpstreamOptions;
  #pool: Pool;
  /** Pools whose last requests are still under way. */
  readonly #ending = new Set<Pool>();
  readonly #open = new Set<OpenOnUpstream>();

  constructor(endpoint: Endpoint, options: UpstreamOptions) {
    this.portName = endpoint.portName;
    this.containerPort = endpoint.containerPort;
    this.address = endpoint.address;
    this.port = endpoint.port;
    this.origin = `http://${endpoint.address}:${endpoint.port}`;
    this.#options = options;
    this.#pool = this.#newPool();
  }

  get pool(): Pool {
    return this.#pool;
  }

  is(endpoint: Endpoint): boolean {
    return (
      this.address === endpoint.address &&
      this.port === endpoint.port &&
      this.containerPort === endpoint.containerPort &&
      this.portName === endpoint.portName
    );
  }

  /**
   * Closes connections that carry nothing, and the others after what they carry: its program falls asleep, maybe, with
   * what it has open, and would find them dead.
   */
  closeIdle(): void {
    const before = this.#pool;
    this.#pool = this.#newPool();
    this.#ending.add(before);
    // Destroyed meanwhile, it is closed too.
    const ended = (): void => {
      this.#ending.delete(before);
    };
    before.close().then(ended, ended);
  }

  enter(open: OpenOnUpstream): void {
    this.#open.add(open);
  }

  leave(open: OpenOnUpstream): void {
    this.#open.delete(open);
  }

  /**
   * Cuts what is still under way, at once: nobody answers behind this address any more. Its packets may be dropped
   * there, so that no connection would ever end by itself.
   */
  discard(reason: Error): void {
    for (const open of [...this.#open]) open.cut();
    for (const pool of [this.#pool, ...this.#ending]) void pool.destroy(reason);
  }

  #newPool(): Pool {
    return new Pool(this.origin, {
      // Bounded by what the router accepts; a bound here would be a second, invisible queue.
      connections: null,
      pipelining: 1,
      headersTimeout: this.#options.headersTimeoutMs,
      // An event stream may be silent for hours.
      bodyTimeout: 0,
      connectTimeout: this.#options.connectTimeoutMs,
      factory: (origin, clientOptions) => new UpstreamClient(origin, clientOptions),
    });
  }
}

/** The upstream of a port's name or number; undefined asks for the first one. */
export function selectUpstream(upstreams: readonly Upstream[], port: string | undefined): Upstream | undefined {
  if (port === undefined) return upstreams[0];
  const number = /^\d+$/.test(port) ? Number(port) : undefined;
  return upstreams.find((upstream) =>
    number === undefined ? upstream.portName === port : upstream.containerPort === number,
  );
}
