import { type Actor, actors, type ActorStatus, type LastOperation } from "@substrate/crds/actor.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { KubeClient } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { type Listening } from "@substrate/lib/listen.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { loadTls, TlsSource } from "@substrate/lib/rpc/tls.ts";
import { FrontProxy } from "@substrate/operator/api/front-proxy.ts";
import { registerApi, waitForApi } from "@substrate/local/aggregated-api.ts";
import { answerJson, type ApiRequest, startApiServer } from "@substrate/operator/api/server.ts";
import { text } from "node:stream/consumers";
import { join } from "node:path";
import { type TestControlPlane } from "../support/controlplane.ts";

/** How the next operation ends, as its status will say. */
export type Ending = "Succeeded" | "Failed" | "never" | "overtaken" | "slept already";

function shifted(time: string, ms: number): string {
  return new Date(Date.parse(time) + ms).toISOString();
}

function wakeBefore(startTime: string): LastOperation {
  return { id: "op-before", type: "Resume", result: "Succeeded", startTime: shifted(startTime, -800) };
}

/**
 * The operator's aggregated API behind a real API server, its operations played by the test: accepted with 202, then
 * written to status.lastOperation.
 */
export class ScriptedOperator {
  ending: Ending = "Succeeded";
  /** Whether a wake of just before stands in the status in the middle of the next operation. */
  lateWake = false;
  /** So many operations are refused because the operator does not lead yet. */
  notLeadingFor = 0;
  /** Bodies of suspends and lines of proxied requests, as they came. */
  readonly asked: string[] = [];
  readonly #client: KubeClient;
  readonly #log = createLogger("test", "error");
  #api: Listening | undefined;
  #count = 0;

  constructor(plane: TestControlPlane) {
    this.#client = new KubeClient(loadKubeConfig(plane.kubeconfig), { fieldManager: "test-operator" });
  }

  async start(plane: TestControlPlane): Promise<void> {
    const { files, authority } = plane.plane.pki;
    const pair = { cert: join(plane.folder, "api.crt"), key: join(plane.folder, "api.key") };
    await plane.issue({ subject: "CN=operator", dnsNames: ["localhost", "operator.substrate-system.svc"] }, pair);
    this.#api = await startApiServer({
      listen: "127.0.0.1:0",
      tls: new TlsSource(loadTls({ caFile: authority.files.cert, certFile: pair.cert, keyFile: pair.key })),
      frontProxy: FrontProxy.fromFiles({ caFile: files.frontProxyAuthority, allowedNames: ["front-proxy-client"] }),
      operatorName: "operator",
      client: this.#client,
      log: this.#log,
      handlers: {
        suspend: { methods: ["POST"], handle: (request) => this.#operate("Suspend", request) },
        resume: { methods: ["POST"], handle: (request) => this.#operate("Resume", request) },
        log: { methods: ["GET"], handle: (request) => this.#printLog(request) },
        proxy: { methods: "any", handle: (request) => this.#proxy(request) },
      },
    });
    await registerApi(this.#client, this.#api.port, authority.files.cert);
    await waitForApi(this.#client, 20_000);
  }

  async stop(): Promise<void> {
    await this.#api?.close();
    await this.#client.close();
  }

  async #operate(type: "Suspend" | "Resume", { actor, incoming, response }: ApiRequest): Promise<void> {
    const body = await text(incoming);
    this.asked.push(`${type} ${body}`);
    if (this.notLeadingFor > 0) {
      this.notLeadingFor -= 1;
      throw new SubstrateError("SHUTTING_DOWN", "this operator does not lead", { retryAfterMs: 1_000 });
    }
    if (actor.spec.state === "Suspended" && type === "Resume") throw new SubstrateError("HELD", "it is kept asleep");
    const id = `op-${++this.#count}`;
    const startTime = new Date().toISOString();
    answerJson(response, 202, { kind: "Operation", operationId: id, startTime });
    const running: LastOperation = { id, type, result: "Running", startTime };
    await this.#write(actor, { ...actor.status, state: "ACTOR_STATE_SUSPENDING", lastOperation: running });
    if (this.ending === "never") return;
    const ended = this.#endOf(actor, running);
    await this.#write(actor, { ...ended, ...(this.lateWake && { lastOperation: wakeBefore(startTime) }) });
    await this.#write(actor, ended);
    if (!body.includes("Sync")) return;
    const snapshots = ended.snapshots?.map((entry) => ({ ...entry, storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED" }));
    await this.#write(actor, { ...ended, snapshots } as ActorStatus);
  }

  #endOf(actor: Actor, running: LastOperation): ActorStatus {
    const endTime = new Date().toISOString();
    if (this.ending === "Failed") {
      const failed = { reason: "REQUESTS_OPEN", message: "2 requests open after 10s" };
      return { ...actor.status, lastOperation: { ...running, result: "Failed", ...failed, endTime } };
    }
    const lastOperation: LastOperation = { ...running, result: "Succeeded", endTime };
    if (running.type === "Resume") return { ...actor.status, state: "ACTOR_STATE_RUNNING", lastOperation };
    if (this.ending === "slept already") return { ...actor.status, state: "ACTOR_STATE_SUSPENDED", lastOperation };
    const generation = (actor.status?.generation ?? 0) + 1;
    const overtaken = this.ending === "overtaken";
    return {
      ...actor.status,
      generation,
      state: overtaken ? "ACTOR_STATE_RUNNING" : "ACTOR_STATE_SUSPENDED",
      snapshots: [
        {
          name: `${actor.metadata.name}-${generation}`,
          generation,
          owner: "SNAPSHOT_OWNER_ACTOR",
          storageState: "SNAPSHOT_STORAGE_STATE_PENDING",
          fidelity: "Memory",
        },
      ],
      lastOperation: overtaken
        ? { ...lastOperation, id: "op-of-a-request", type: "Resume", startTime: shifted(running.startTime, 1) }
        : lastOperation,
    };
  }

  async #write(actor: Actor, status: ActorStatus): Promise<void> {
    const { name, namespace } = actor.metadata;
    await this.#client.mergePatch(actors, name, namespace, { status }, { subresource: "status" });
  }

  async #printLog({ query, response }: ApiRequest): Promise<void> {
    response.writeHead(200, { "content-type": "text/plain" });
    response.write(`tail ${query.get("tail") ?? ""}\n`);
    response.end(`follow ${query.get("follow") ?? ""}\n`);
    return Promise.resolve();
  }

  async #proxy({ path, search, incoming, response }: ApiRequest): Promise<void> {
    const body = await text(incoming);
    const { authorization = "none", "substrate-port": port = "first" } = incoming.headers;
    this.asked.push(
      `${incoming.method ?? ""} ${path.rest}${search} port ${String(port)} authorization ${authorization}`,
    );
    response.writeHead(201, { "x-from": "the actor" }).end(`you sent: ${body}`);
  }
}
