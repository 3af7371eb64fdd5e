import { type Logger } from "@substrate/lib/log.ts";
import { AteletLink, type LinkListener, type LinkOptions } from "./link.ts";
import { type Peer } from "./holding.ts";

/** What an atelet's Lease says. */
export interface AteletAddress {
  nodeName: string;
  /** host:port of its gRPC. */
  address: string;
  bootId: string | undefined;
}

interface AteletsListener extends LinkListener {
  removed(peer: Peer): void;
}

export interface AteletsOptions extends Omit<LinkOptions, "listener" | "log"> {
  listener: AteletsListener;
  /** How long a request waits for a lost atelet before the operator is asked. */
  reattachPatienceMs: number;
  log: Logger;
}

/** One link per atelet that has a Lease. */
export class Atelets {
  readonly #options: AteletsOptions;
  readonly #links = new Map<string, AteletLink>();
  readonly #listed = Promise.withResolvers<undefined>();
  #isListed = false;
  readonly #startedAt = performance.now();

  constructor(options: AteletsOptions) {
    this.#options = options;
  }

  /** Every Lease of an atelet, as levels: links that are not among them end. */
  setAll(addresses: readonly AteletAddress[]): void {
    const named = new Set(addresses.map((entry) => entry.nodeName));
    for (const [nodeName, link] of this.#links) {
      if (named.has(nodeName)) continue;
      this.#links.delete(nodeName);
      this.#options.log.info("the Lease of an atelet is gone", { node: nodeName });
      void link.stop().then(() => {
        this.#options.listener.removed(link);
      });
    }
    for (const { nodeName, address, bootId } of addresses) {
      const known = this.#links.get(nodeName);
      if (known !== undefined) {
        known.renewed(address, bootId);
        continue;
      }
      const link = new AteletLink(nodeName, address, this.#options);
      this.#links.set(nodeName, link);
      link.start();
    }
    this.#isListed = true;
    this.#listed.resolve(undefined);
  }

  get(nodeName: string): AteletLink | undefined {
    return this.#links.get(nodeName);
  }

  get attachedCount(): number {
    return [...this.#links.values()].filter((link) => link.isSynced).length;
  }

  /** Whether the Leases are known and each atelet is attached or has had its time. */
  get isSettled(): boolean {
    return this.#isListed && [...this.#links.values()].every((link) => link.isSynced || !this.#patient(link.lostAt));
  }

  /** Ends when isSettled does, at the latest after the patience for lost atelets. */
  async settled(): Promise<void> {
    await this.#withinPatience(this.#listed.promise, this.#startedAt);
    await Promise.all([...this.#links.values()].map((link) => this.#withinPatience(link.settled, link.lostAt)));
  }

  /** While that node's atelet is being attached and patience lasts: ends when it is worth looking again. */
  attaching(nodeName: string | undefined): Promise<void> | undefined {
    if (!this.#isListed) {
      return this.#patient(this.#startedAt) ? this.#withinPatience(this.#listed.promise, this.#startedAt) : undefined;
    }
    const link = nodeName === undefined ? undefined : this.#links.get(nodeName);
    if (link === undefined || link.isSynced || !this.#patient(link.lostAt)) return undefined;
    return this.#withinPatience(link.settled, link.lostAt);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#links.values()].map((link) => link.stop()));
    this.#links.clear();
  }

  #patient(since: number): boolean {
    return performance.now() - since < this.#options.reattachPatienceMs;
  }

  #withinPatience(event: Promise<void>, since: number): Promise<void> {
    const restMs = Math.max(0, since + this.#options.reattachPatienceMs - performance.now());
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, restMs);
      void event.then(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}
