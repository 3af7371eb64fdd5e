import { setTimeout as sleep } from "node:timers/promises";
import { type ChannelCredentials, type ClientDuplexStream } from "@grpc/grpc-js";
import { SubstrateError } from "@substrate/lib/errors.ts";
import {
  AteletServiceClient,
  type ExecRequest,
  type ExecResponse,
  type ExecStart,
  type Leader,
  type NodeReport,
  type ReadOperationsResponse,
  type ReadUsageResponse,
  type WatchActorsResponse,
} from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type ActorKey, type ActorReport, ActorState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { fromServiceError, isServiceError } from "@substrate/lib/rpc/errors.ts";
import { dial, unary, type UnaryMethod } from "@substrate/lib/rpc/client.ts";
import { type NodeView } from "./actor-world.ts";

/** What an atelet's Lease says of it. */
export interface AteletLease {
  nodeName: string;
  address: string;
  session: string;
  bootId: string;
  runtime: string;
}

export interface AteletLinkOptions {
  lease: AteletLease;
  credentials: ChannelCredentials;
  leader: () => Leader;
  log: Logger;
  /** Something about this actor changed on the node. */
  onActor: (actor: ActorKey) => void;
  /** Whether the node can be reached changed. */
  onNode: () => void;
  /** It said how it is. */
  onReport: (report: NodeReport) => void;
}

/** A look at one actor takes the node milliseconds. */
const inspectionMs = 5_000;
const firstRetryMs = 100;
const lastRetryMs = 5_000;

/** The connection to one atelet: its reports as levels, and calls to it. */
export class AteletLink {
  readonly #options: AteletLinkOptions;
  readonly #client: AteletServiceClient;
  readonly #stop = new AbortController();
  readonly #reports = new Map<string, ActorReport>();
  #lease: AteletLease;
  #node: NodeReport | undefined;
  #synced = false;
  #refusal: { term: bigint; message: string } | undefined;
  #unsyncedSinceMs = performance.now();

  constructor(options: AteletLinkOptions) {
    this.#options = options;
    this.#lease = options.lease;
    this.#client = dial(AteletServiceClient, options.lease.address, "atelet", options.credentials);
    void this.#follow();
  }

  get lease(): AteletLease {
    return this.#lease;
  }

  /** A newer Lease of the same address. */
  set lease(lease: AteletLease) {
    this.#lease = lease;
  }

  get node(): NodeReport | undefined {
    return this.#synced ? this.#node : undefined;
  }

  /** Why the node takes no orders under this term, and what to do; undefined when it has not refused it. */
  refusal(term: bigint): string | undefined {
    return this.#refusal?.term === term ? this.#refusal.message : undefined;
  }

  view(): NodeView {
    const unreachableMs = this.#synced ? 0 : performance.now() - this.#unsyncedSinceMs;
    return { nodeName: this.#lease.nodeName, synced: this.#synced, unreachableMs };
  }

  /** How many actors the node has, and how many of them run. */
  actors(): { actors: number; running: number } {
    const reports = this.#synced ? [...this.#reports.values()] : [];
    const running = reports.filter(({ state }) => state === ActorState.ACTOR_STATE_RUNNING);
    return { actors: reports.length, running: running.length };
  }

  /** Undefined while the reports aren't known completely, too. */
  report(uid: string): ActorReport | undefined {
    return this.#synced ? this.#reports.get(uid) : undefined;
  }

  /**
   * One call with the leader's term. Throws SubstrateError; a node that doesn't answer is NODE_UNAVAILABLE, with its
   * name in the message.
   */
  async call<Request extends { leader: Leader | undefined }, Response>(
    method: (client: AteletServiceClient) => UnaryMethod<Request, Response>,
    request: Omit<Request, "leader">,
    options: { deadlineMs: number; signal?: AbortSignal },
  ): Promise<Response> {
    const leader = this.#options.leader();
    const complete = { ...request, leader } as Request;
    return this.#named(() => unary(method(this.#client), complete, options), leader);
  }

  /** Says in an error which node it is about. */
  async #named<T>(call: () => Promise<T>, leader?: Leader): Promise<T> {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof SubstrateError)) throw error;
      this.#learn(error, leader);
      const retry = error.retryAfterMs === undefined ? {} : { retryAfterMs: error.retryAfterMs };
      throw new SubstrateError(error.code, `node ${this.#lease.nodeName}: ${error.message}`, {
        cause: error,
        ...retry,
      });
    }
  }

  /** The actor's output; ends when the atelet ends it or `signal` aborts. Throws ServiceError. */
  readLog(uid: string, tailLines: number, follow: boolean, signal: AbortSignal): AsyncIterable<{ data: Buffer }> {
    const stream = this.#client.readLog({ actorUid: uid, tailLines, follow });
    signal.addEventListener(
      "abort",
      () => {
        stream.cancel();
      },
      { once: true },
    );
    return stream as AsyncIterable<{ data: Buffer }>;
  }

  readUsage(uid: string, signal: AbortSignal): Promise<ReadUsageResponse> {
    const options = { deadlineMs: inspectionMs, signal };
    return this.#named(() => unary(this.#client.readUsage.bind(this.#client), { actorUid: uid }, options));
  }

  readOperations(uid: string, signal: AbortSignal): Promise<ReadOperationsResponse> {
    const options = { deadlineMs: inspectionMs, signal };
    return this.#named(() => unary(this.#client.readOperations.bind(this.#client), { actorUid: uid }, options));
  }

  /** Begins an exec; the caller sends input, reads output and cancels it when its client is gone. */
  exec(start: Omit<ExecStart, "leader" | "size">): ClientDuplexStream<ExecRequest, ExecResponse> {
    const leader = this.#options.leader();
    const stream = this.#client.exec();
    stream.write({ message: { $case: "start", value: { ...start, leader, size: undefined } } });
    return stream;
  }

  close(): void {
    this.#stop.abort();
    this.#client.close();
  }

  async #follow(): Promise<void> {
    const { signal } = this.#stop;
    const closed = (): boolean => signal.aborted;
    let failures = 0;
    while (!closed()) {
      try {
        await this.#watch(signal, () => {
          failures = 0;
        });
      } catch (error) {
        if (closed()) return;
        const level = failures === 0 ? "warn" : "debug";
        this.#options.log.log(level, "atelet's reports broke off", { node: this.#lease.nodeName, error });
      }
      this.#setSynced(false);
      failures += 1;
      const delayMs = Math.min(lastRetryMs, firstRetryMs * 2 ** Math.min(failures - 1, 10)) * (0.5 + Math.random() / 2);
      await sleep(delayMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async #watch(signal: AbortSignal, onSynced: () => void): Promise<void> {
    const leader = this.#options.leader();
    const stream = this.#client.watchActors({ leader });
    const cancel = (): void => {
      stream.cancel();
    };
    signal.addEventListener("abort", cancel, { once: true });
    const seen = new Set<string>();
    try {
      for await (const { event } of stream as AsyncIterable<WatchActorsResponse>) {
        if (event === undefined) continue;
        switch (event.$case) {
          case "node":
            this.#node = event.value;
            this.#options.onReport(event.value);
            break;
          case "actor":
            if (event.value.actor === undefined) break;
            seen.add(event.value.actor.uid);
            this.#reports.set(event.value.actor.uid, event.value);
            if (this.#synced) this.#options.onActor(event.value.actor);
            break;
          case "gone":
            this.#drop(event.value.uid);
            break;
          case "synced":
            for (const uid of this.#reports.keys()) if (!seen.has(uid)) this.#drop(uid);
            onSynced();
            this.#setSynced(true);
            break;
        }
      }
    } catch (error) {
      if (isServiceError(error)) this.#learn(fromServiceError(error), leader);
      throw error;
    } finally {
      signal.removeEventListener("abort", cancel);
      stream.cancel();
    }
  }

  /** A node that has heard of a higher term never takes orders under this one again. */
  #learn(error: SubstrateError, leader: Leader | undefined): void {
    if (error.code !== "STALE_TERM" || leader === undefined || this.#refusal?.term === leader.term) return;
    const refused = `node ${this.#lease.nodeName} takes no orders from this operator: ${error.message}`;
    const fix = "If no other operator leads, set spec.leaseTransitions of the Lease substrate-operator above that term";
    this.#options.log.error("atelet refuses this operator's term", { refused, fix });
    this.#refusal = { term: leader.term, message: `${refused}. ${fix}` };
  }

  #drop(uid: string): void {
    const actor = this.#reports.get(uid)?.actor;
    this.#reports.delete(uid);
    if (actor !== undefined) this.#options.onActor(actor);
  }

  #setSynced(synced: boolean): void {
    if (this.#synced === synced) return;
    this.#synced = synced;
    this.#unsyncedSinceMs = performance.now();
    this.#options.log.info(synced ? "atelet connected" : "atelet disconnected", {
      node: this.#lease.nodeName,
      address: this.#lease.address,
      actors: this.#reports.size,
    });
    this.#options.onNode();
    for (const { actor } of this.#reports.values()) if (actor !== undefined) this.#options.onActor(actor);
  }
}
