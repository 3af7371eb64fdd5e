import { type ServerDuplexStream } from "@grpc/grpc-js";
import {
  type AttachRequest,
  type AttachResponse,
  type OpenRequests,
  type Route,
  RouteServiceService,
  type RouteState,
} from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { duplexHandler, type RpcServer, startRpcServer, unaryHandler } from "@substrate/lib/rpc/server.ts";
import { serverCredentials, type TlsSource } from "@substrate/lib/rpc/tls.ts";

type Stream = ServerDuplexStream<AttachRequest, AttachResponse>;

export interface ActorScript {
  uid: string;
  name: string;
  /** Port of the HTTP server that plays the actor. */
  port: number;
}

/** A Route of an actor in namespace `default` whose program listens on a port of this machine. */
export function routeOf(script: ActorScript, state: RouteState, fields: Partial<Route> = {}): Route {
  const answers = state === "ROUTE_STATE_RUNNING" || state === "ROUTE_STATE_GATED";
  return {
    actor: { uid: script.uid, namespace: "default", name: script.name, namespaceUid: "ns-uid" },
    epoch: 1n,
    state,
    gateId: 0n,
    endpoints: answers ? [{ portName: "http", containerPort: 8080, address: "127.0.0.1", port: script.port }] : [],
    wakeTimeoutMs: 10_000n,
    message: "",
    retryAfterMs: 0n,
    reason: "",
    ...fields,
  };
}

/** The router's side of an atelet, over real gRPC: the test says what it shows and how its wakes end. */
export class ScriptedAtelet {
  readonly counts: OpenRequests[] = [];
  readonly wakes: string[] = [];
  onWake: (uid: string) => Promise<Route> = () => Promise.reject(new Error("no wake expected"));
  readonly #tls: TlsSource;
  readonly #log: Logger;
  readonly #routes = new Map<string, Route>();
  readonly #streams = new Set<Stream>();
  #server: RpcServer | undefined;
  #port = 0;

  constructor(tls: TlsSource, log: Logger) {
    this.#tls = tls;
    this.#log = log;
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  get attached(): number {
    return this.#streams.size;
  }

  async start(): Promise<void> {
    const implementation = {
      attach: duplexHandler<AttachRequest, AttachResponse>({ log: this.#log }, (stream, { signal }) =>
        this.#attach(stream, signal),
      ),
      wake: unaryHandler({ log: this.#log }, async ({ actorUid }: { actorUid: string }) => {
        this.wakes.push(actorUid);
        return { route: await this.onWake(actorUid) };
      }),
    };
    this.#server = await startRpcServer({
      address: `127.0.0.1:${this.#port}`,
      credentials: serverCredentials(this.#tls),
      services: [{ definition: RouteServiceService, implementation }],
    });
    this.#port = this.#server.port;
  }

  /** As kill -9 would: connections break, the port stays its own. */
  async stop(): Promise<void> {
    await this.#server?.stop(0);
    this.#streams.clear();
  }

  show(route: Route): void {
    this.#routes.set(route.actor?.uid ?? "", route);
    this.#tell({ message: { $case: "route", value: route } });
  }

  forget(uid: string): void {
    this.#routes.delete(uid);
    this.#tell({ message: { $case: "gone", value: { actorUid: uid } } });
  }

  /** The newest count of an actor. */
  countOf(uid: string): OpenRequests | undefined {
    return this.counts.findLast((counts) => counts.actorUid === uid);
  }

  #tell(response: AttachResponse): void {
    for (const stream of this.#streams) stream.write(response);
  }

  #attach(stream: Stream, signal: AbortSignal): Promise<void> {
    stream.on("data", ({ message }: AttachRequest) => {
      if (message?.$case === "openRequests") this.counts.push(message.value);
      if (message?.$case === "ping") stream.write({ message: { $case: "pong", value: { id: message.value.id } } });
      if (message?.$case !== "hello") return;
      stream.write({ message: { $case: "hello", value: { nodeName: "node-1", bootId: "b", session: "s" } } });
      for (const route of this.#routes.values()) stream.write({ message: { $case: "route", value: route } });
      stream.write({ message: { $case: "synced", value: {} } });
      this.#streams.add(stream);
    });
    return new Promise((resolve) => {
      const end = (): void => {
        this.#streams.delete(stream);
        resolve();
      };
      signal.addEventListener("abort", end, { once: true });
      stream.on("end", end);
    });
  }
}
