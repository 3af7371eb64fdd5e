import { type ServerDuplexStream } from "@grpc/grpc-js";
import { type AttachRequest, type AttachResponse } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Routers } from "../actors/node-context.ts";
import { type RouteLevel } from "../actors/route-level.ts";
import { routeToWire } from "./convert.ts";

/** How long after a restart an earlier router may take to attach again; routers try every second at least. */
const REATTACH_MS = 5000;

type Stream = ServerDuplexStream<AttachRequest, AttachResponse>;

interface Attached {
  stream: Stream;
  address: string;
  /** Newest word of this router on each actor; absent: nothing open, no gate seen. */
  counts: Map<string, { open: number; gateId: number }>;
}

export interface RouteHubOptions {
  podAddress: string;
  hello: () => { nodeName: string; bootId: string; session: string };
  routes: () => RouteLevel[];
  /** Tells the kernel which addresses may reach actors. */
  setRouters: (addresses: string[]) => Promise<void>;
  activity: (uid: string) => void;
  log: Logger;
}

/** All attached routers: pushes routes to them, and knows from them how many requests are open. */
export class RouteHub implements Routers {
  readonly #options: RouteHubOptions;
  readonly #attached = new Set<Attached>();
  #changed = Promise.withResolvers<undefined>();
  #expected: readonly string[] = [];

  constructor(options: RouteHubOptions) {
    this.#options = options;
  }

  /**
   * Routers that an earlier atelet had let in: they are on their way back. Meanwhile their connections go on, and a
   * suspend waits for them as for an attached one, so that a restart of the atelet cuts nobody's request.
   */
  expect(addresses: readonly string[]): void {
    this.#expected = addresses;
    setTimeout(() => {
      this.#expectNoMore();
    }, REATTACH_MS).unref();
  }

  publish(route: RouteLevel): void {
    this.#send({ $case: "route", value: routeToWire(route, this.#options.podAddress) });
  }

  gone(uid: string): void {
    for (const { counts } of this.#attached) counts.delete(uid);
    this.#send({ $case: "gone", value: { actorUid: uid } });
  }

  async drain(uid: string, gateId: number, timeoutMs: number): Promise<number> {
    const timeout = Promise.withResolvers<undefined>();
    const timer = setTimeout(() => {
      timeout.resolve(undefined);
    }, timeoutMs);
    const endMs = performance.now() + timeoutMs;
    try {
      for (;;) {
        let open = 0;
        let waiting = this.#expected.length;
        for (const { counts } of this.#attached) {
          const count = counts.get(uid);
          open += count?.open ?? 0;
          if ((count?.gateId ?? 0) < gateId) waiting += 1;
        }
        if (open === 0 && waiting === 0) return 0;
        // A router that does not even acknowledge is not waited for longer than an open request is.
        if (performance.now() >= endMs) return open;
        await Promise.race([this.#changed.promise, timeout.promise]);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** One router's stream, from its hello to its end. */
  async attach(stream: Stream, address: string, signal: AbortSignal): Promise<void> {
    const attached: Attached = { stream, address, counts: new Map() };
    this.#attached.add(attached);
    this.#expected = this.#expected.filter((expected) => expected !== address);
    const ended = Promise.withResolvers<undefined>();
    const end = (): void => {
      ended.resolve(undefined);
    };
    signal.addEventListener("abort", end, { once: true });
    stream.on("end", end);
    stream.on("data", (request: AttachRequest) => {
      this.#received(attached, request);
    });
    try {
      // Before the first route: a router that has one may connect at once.
      await this.#options.setRouters(this.#addresses());
      this.#sendTo(attached, { $case: "hello", value: this.#options.hello() });
      for (const route of this.#options.routes()) {
        this.#sendTo(attached, { $case: "route", value: routeToWire(route, this.#options.podAddress) });
      }
      this.#sendTo(attached, { $case: "synced", value: {} });
      this.#options.log.info("router attached", { address });
      await ended.promise;
    } finally {
      this.#attached.delete(attached);
      this.#wake();
      await this.#options.setRouters(this.#addresses());
      this.#options.log.info("router detached", { address });
    }
  }

  #received(attached: Attached, { message }: AttachRequest): void {
    if (message?.$case === "openRequests") {
      const { actorUid, open, gateId } = message.value;
      attached.counts.set(actorUid, { open, gateId: Number(gateId) });
      this.#options.activity(actorUid);
      this.#wake();
    } else if (message?.$case === "ping") {
      this.#sendTo(attached, { $case: "pong", value: { id: message.value.id } });
    }
  }

  #addresses(): string[] {
    return [...new Set([...this.#expected, ...[...this.#attached].map(({ address }) => address)])];
  }

  #expectNoMore(): void {
    if (this.#expected.length === 0) return;
    this.#options.log.warn("routers of the time before the restart did not come back", { addresses: this.#expected });
    this.#expected = [];
    this.#wake();
    this.#options.setRouters(this.#addresses()).catch((error: unknown) => {
      this.#options.log.error("cutting routers that did not come back failed", { error });
    });
  }

  #wake(): void {
    this.#changed.resolve(undefined);
    this.#changed = Promise.withResolvers();
  }

  #send(message: NonNullable<AttachResponse["message"]>): void {
    for (const attached of this.#attached) this.#sendTo(attached, message);
  }

  #sendTo({ stream }: Attached, message: NonNullable<AttachResponse["message"]>): void {
    if (!stream.writableEnded && !stream.destroyed) stream.write({ message });
  }
}

/** "ipv4:10.0.0.1:1234" or "10.0.0.1:1234" → "10.0.0.1". */
export function peerAddress(peer: string): string {
  return peer.replace(/^ipv4:/, "").replace(/:\d+$/, "");
}
