import { mkdtempSync, rmSync } from "node:fs";
import {
  Agent,
  type IncomingMessage,
  request as httpRequest,
  type OutgoingHttpHeaders,
  type RequestOptions,
} from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { WakeServiceService } from "@substrate/lib/gen/substrate/operator/v1/wake.ts";
import { createLogger, type Logger } from "@substrate/lib/log.ts";
import { type RpcServer, startRpcServer, unaryHandler } from "@substrate/lib/rpc/server.ts";
import { clientCredentials, loadTls, serverCredentials, TlsSource } from "@substrate/lib/rpc/tls.ts";
import { Authority } from "@substrate/local/certificates.ts";
import { type KnownActor } from "@substrate/router/names.ts";
import { Router, type RouterLimits } from "@substrate/router/router.ts";
import { Registry } from "prom-client";
import { ScriptedAtelet } from "./scripted-atelet.ts";

export interface Answer {
  status: number;
  headers: IncomingMessage["headers"];
  body: string;
}

type AskOptions = Omit<RequestOptions, "headers"> & { headers?: OutgoingHttpHeaders };

const limits: RouterLimits = {
  maxConnections: 1_000,
  maxHeld: 200,
  maxHeldPerActor: 100,
  defaultWakeTimeoutMs: 10_000,
  headersTimeoutMs: 30_000,
  connectTimeoutMs: 2_000,
  reattachPatienceMs: 3_000,
  refusedPatienceMs: 400,
  shutdownGraceMs: 1_000,
};

/** A real router between real HTTP servers and a scripted atelet and operator, over mutual TLS. */
export class Rig {
  readonly atelet: ScriptedAtelet;
  readonly registry = new Registry();
  /** What the API server would say; `undefined`: it hasn't been reached. */
  names: Map<string, KnownActor> | undefined = new Map();
  readonly operatorWakes: string[] = [];
  onOperatorWake: (uid: string) => Promise<void> = () => Promise.reject(new Error("no operator expected"));
  router: Router;
  port = 0;
  readonly #folder: string;
  readonly #log: Logger;
  readonly #routerTls: TlsSource;
  readonly #operatorTls: TlsSource;
  readonly #agent = new Agent({ keepAlive: true });
  #operator: RpcServer | undefined;

  static async start(changed: Partial<RouterLimits> = {}): Promise<Rig> {
    const folder = mkdtempSync(join(tmpdir(), "sub-router-"));
    const files = (name: string): { cert: string; key: string } => ({
      cert: join(folder, `${name}.crt`),
      key: join(folder, `${name}.key`),
    });
    const authority = await Authority.open("test", files("ca"));
    const issue = async (part: string): Promise<TlsSource> => {
      const subject = `CN=system:serviceaccount:substrate-system:${part}`;
      const { cert, key } = await authority.issue({ subject, dnsNames: [`${part}.substrate.internal`] }, files(part));
      return new TlsSource(loadTls({ caFile: files("ca").cert, certFile: cert, keyFile: key }));
    };
    const rig = new Rig(folder, await issue("router"), await issue("atelet"), await issue("operator"), changed);
    await rig.atelet.start();
    rig.port = await rig.router.listen();
    rig.router.setAtelets([{ nodeName: "node-1", address: rig.atelet.address, bootId: "b" }]);
    return rig;
  }

  private constructor(
    folder: string,
    routerTls: TlsSource,
    ateletTls: TlsSource,
    operatorTls: TlsSource,
    changed: Partial<RouterLimits>,
  ) {
    this.#folder = folder;
    this.#log = createLogger("test", "error");
    this.#routerTls = routerTls;
    this.#operatorTls = operatorTls;
    this.atelet = new ScriptedAtelet(ateletTls, this.#log);
    this.router = this.#makeRouter(changed);
  }

  async startOperator(): Promise<void> {
    const implementation = {
      wake: unaryHandler({ log: this.#log }, async ({ actorUid }: { actorUid: string }) => {
        this.operatorWakes.push(actorUid);
        await this.onOperatorWake(actorUid);
        return { nodeName: "node-1" };
      }),
    };
    this.#operator = await startRpcServer({
      address: "127.0.0.1:0",
      credentials: serverCredentials(this.#operatorTls),
      services: [{ definition: WakeServiceService, implementation }],
    });
    this.router.setOperator(`127.0.0.1:${this.#operator.port}`);
  }

  async stop(): Promise<void> {
    this.#agent.destroy();
    await this.router.stop();
    await this.atelet.stop();
    await this.#operator?.stop(0);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Options of a request to the actor of that name. */
  to(name: string, path = "/", options: AskOptions = {}): RequestOptions {
    const headers = { host: `${name}.default.actors.localhost`, ...options.headers };
    return { host: "127.0.0.1", port: this.port, path, agent: this.#agent, ...options, headers };
  }

  async get(name: string, path = "/", options: AskOptions = {}, body?: string): Promise<Answer> {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      httpRequest(this.to(name, path, options), resolve)
        .on("error", reject)
        .end(body);
    });
    return { status: response.statusCode ?? 0, headers: response.headers, body: await text(response) };
  }

  async metric(name: string): Promise<number> {
    const metric = await this.registry.getSingleMetric(name)?.get();
    return metric?.values.reduce((sum, { value }) => sum + value, 0) ?? 0;
  }

  #makeRouter(changed: Partial<RouterLimits>): Router {
    const isSynced = (): boolean => this.names !== undefined;
    return new Router({
      listen: "127.0.0.1:0",
      domain: "actors.localhost",
      limits: { ...limits, ...changed },
      credentials: clientCredentials(this.#routerTls),
      names: {
        get isSynced() {
          return isSynced();
        },
        synced: Promise.resolve(),
        find: (key) => this.names?.get(key),
      },
      registry: this.registry,
      log: this.#log,
    });
  }
}
