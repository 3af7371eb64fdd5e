import { setTimeout as sleep } from "node:timers/promises";
import { type ChannelCredentials, type ClientDuplexStream } from "@grpc/grpc-js";
import { SubstrateError } from "@substrate/lib/errors.ts";
import {
  type AteletHello,
  type AttachRequest,
  type AttachResponse,
  type OpenRequests,
  type Route,
  RouteServiceClient,
} from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { dial, unary } from "@substrate/lib/rpc/client.ts";
import { type Peer } from "./holding.ts";

const firstRetryMs = 50;
const lastRetryMs = 2_000;
/** The atelet answers hello at once; a connection through a dead path must not look like one. */
const helloTimeoutMs = 5_000;
const pingEveryMs = 3_000;
/** Three pings unanswered: the stream is dead though TCP doesn't know it yet. */
const silentAfterMs = 10_000;

export interface LinkListener {
  attached(peer: Peer): void;
  route(peer: Peer, route: Route): void;
  gone(peer: Peer, uid: string): void;
  synced(peer: Peer): void;
  lost(peer: Peer): void;
}

export interface LinkOptions {
  routerId: string;
  credentials: ChannelCredentials;
  listener: LinkListener;
  log: Logger;
}

type AttachStream = ClientDuplexStream<AttachRequest, AttachResponse>;

/** This router's one stream to one atelet, made again for as long as the atelet's Lease exists. */
export class AteletLink implements Peer {
  readonly nodeName: string;
  readonly #options: LinkOptions;
  readonly #log: Logger;
  readonly #stop = new AbortController();
  #address: string;
  #kick = new AbortController();
  #client: RouteServiceClient | undefined;
  #stream: AttachStream | undefined;
  #hello: AteletHello | undefined;
  #settled = Promise.withResolvers<undefined>();
  #isSynced = false;
  #lostAt = performance.now();
  #running: Promise<void> | undefined;

  constructor(nodeName: string, address: string, options: LinkOptions) {
    this.nodeName = nodeName;
    this.#address = address;
    this.#options = options;
    this.#log = options.log.child({ node: nodeName });
  }

  /** All routes of the atelet are known and kept up to date. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Resolves when the routes are known the next time (now, if they are). */
  get settled(): Promise<void> {
    return this.#settled.promise;
  }

  /** performance.now() of the last loss, or of the first try. */
  get lostAt(): number {
    return this.#lostAt;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** The Lease changed: a new address or another boot is tried at once. */
  renewed(address: string, bootId: string | undefined): void {
    const moved = address !== this.#address;
    this.#address = address;
    const rebooted = bootId !== undefined && this.#hello !== undefined && this.#hello.bootId !== bootId;
    if (moved || rebooted) this.#stream?.cancel();
    if (this.#stream === undefined || moved || rebooted) this.#kick.abort();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#kick.abort();
    this.#stream?.cancel();
    await this.#running;
  }

  report(counts: OpenRequests): boolean {
    return this.#send({ message: { $case: "openRequests", value: counts } });
  }

  /** @throws {SubstrateError} of the atelet, or NODE_UNAVAILABLE without a stream */
  async wake(actorUid: string, deadlineMs: number): Promise<Route | undefined> {
    const client = this.#client;
    if (client === undefined || this.#hello === undefined) {
      throw new SubstrateError("NODE_UNAVAILABLE", `node ${this.nodeName} is not attached to this router now`);
    }
    const response = await unary(client.wake.bind(client), { actorUid }, { deadlineMs });
    return response.route;
  }

  #send(request: AttachRequest): boolean {
    if (this.#stream === undefined) return false;
    this.#stream.write(request);
    return true;
  }

  async #run(): Promise<void> {
    let retryMs = firstRetryMs;
    const stopped = (): boolean => this.#stop.signal.aborted;
    while (!stopped()) {
      this.#kick = new AbortController();
      const problem = await this.#attach();
      if (this.#hello !== undefined) retryMs = firstRetryMs;
      this.#lose();
      if (stopped()) return;
      this.#log.info("atelet not attached", { address: this.#address, problem, retryMs });
      const jitteredMs = retryMs * (0.75 + Math.random() / 2);
      await sleep(jitteredMs, undefined, { signal: this.#kick.signal }).catch(() => {
        this.#log.debug("the Lease changed: trying at once");
      });
      retryMs = Math.min(lastRetryMs, retryMs * 2);
    }
  }

  /** One stream from its start to its end; answers why it ended. */
  async #attach(): Promise<string> {
    let client: RouteServiceClient;
    try {
      client = dial(RouteServiceClient, this.#address, "atelet", this.#options.credentials);
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
    const stream = client.attach();
    this.#client = client;
    this.#stream = stream;
    const ended = Promise.withResolvers<string>();
    let heardAt = performance.now();
    let pings = 0n;
    const watchdog = setInterval(() => {
      const silentMs = performance.now() - heardAt;
      if (silentMs > (this.#hello === undefined ? helloTimeoutMs : silentAfterMs)) {
        ended.resolve(`no word for ${Math.round(silentMs / 1000)} s`);
        stream.cancel();
        return;
      }
      if (this.#hello !== undefined) this.#send({ message: { $case: "ping", value: { id: ++pings } } });
    }, pingEveryMs);
    stream.on("data", (response: AttachResponse) => {
      heardAt = performance.now();
      try {
        this.#receive(response);
      } catch (error) {
        ended.resolve(error instanceof Error ? error.message : String(error));
        stream.cancel();
      }
    });
    stream.on("error", (error) => {
      ended.resolve(error.message);
    });
    stream.on("end", () => {
      ended.resolve("the atelet ended the stream");
    });
    stream.write({ message: { $case: "hello", value: { routerId: this.#options.routerId } } });
    const problem = await ended.promise;
    clearInterval(watchdog);
    stream.removeAllListeners("data");
    this.#stream = undefined;
    this.#client = undefined;
    client.close();
    return problem;
  }

  #receive(response: AttachResponse): void {
    const { listener } = this.#options;
    const { message } = response;
    switch (message?.$case) {
      case "hello":
        this.#hello = message.value;
        listener.attached(this);
        break;
      case "route":
        listener.route(this, message.value);
        break;
      case "gone":
        listener.gone(this, message.value.actorUid);
        break;
      case "synced":
        listener.synced(this);
        this.#isSynced = true;
        this.#settled.resolve(undefined);
        this.#log.info("atelet attached", { address: this.#address, bootId: this.#hello?.bootId });
        break;
      case "pong":
      case undefined:
        break;
    }
  }

  #lose(): void {
    if (this.#isSynced) this.#settled = Promise.withResolvers<undefined>();
    if (this.#hello !== undefined) {
      this.#lostAt = performance.now();
      this.#hello = undefined;
      this.#isSynced = false;
      this.#options.listener.lost(this);
    }
  }
}
