import { readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Actor, actors, type Template, templates } from "@substrate/crds/index.ts";
import { Reflector } from "@substrate/lib/kube/reflector.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { Pool } from "undici";
import { z } from "zod";
import { type GluttonOptions, gluttonTemplate } from "./template.ts";

const namespace = "default";
const WAKE_TIMEOUT_MS = 120_000;
const operationSchema = z.object({ operationId: z.string() });
const operationsSchema = z.object({
  items: z.array(
    z.object({
      type: z.string(),
      phases: z.array(z.object({ name: z.string(), ms: z.coerce.number() })),
    }),
  ),
});

function subresource(name: string, verb: string): string {
  return `/apis/subresources.substrate.run/v1alpha1/namespaces/${namespace}/actors/${name}/${verb}`;
}

export interface MeasuredActor {
  name: string;
  mib: number;
  kind: "random" | "zero";
}

/** What a benchmark needs of a cluster. */
interface BenchedCluster {
  client: KubeClient;
  /** `http://HOST[:PORT]` */
  routerUrl: string;
  /** Folder of the only node, where it can be looked into. */
  nodeDir?: string;
}

/** Suspends and resumes as a client of the cluster sees them: over warm connections to the API server and the router. */
export class Product {
  readonly #cluster: BenchedCluster;
  readonly #router: Pool;
  readonly #actors: Reflector<Actor>;
  readonly #end = new AbortController();
  readonly #signal: AbortSignal;

  private constructor(cluster: BenchedCluster, signal: AbortSignal | undefined) {
    this.#cluster = cluster;
    this.#signal = signal === undefined ? this.#end.signal : AbortSignal.any([signal, this.#end.signal]);
    this.#router = new Pool(cluster.routerUrl, { connections: 32, headersTimeout: 120_000, bodyTimeout: 120_000 });
    this.#actors = new Reflector(cluster.client, actors, { namespace, log: createLogger("bench", "error") });
  }

  /** @param signal gives up what waits. */
  static async create(cluster: BenchedCluster, signal?: AbortSignal): Promise<Product> {
    const product = new Product(cluster, signal);
    void product.#actors.run(product.#end.signal);
    await product.#actors.synced;
    return product;
  }

  /** Applies a Template and an Actor of it, waits until both are Ready, and lets the program fill its memory. */
  async make(actor: MeasuredActor, image: string, options: GluttonOptions): Promise<void> {
    await this.#create("templates", gluttonTemplate(actor.name, image, { memoryMib: actor.mib + 300, ...options }));
    await this.actor(actor.name, actor.name);
    await this.hold(actor);
  }

  async hold({ name, mib, kind }: MeasuredActor): Promise<void> {
    await this.request(name, "POST", `/hold?mib=${mib}&kind=${kind}`);
  }

  /** Applies a Template and waits until it is Ready, and has its golden snapshot if it is to have one. */
  async template(template: Template): Promise<void> {
    await this.#create("templates", template);
    const { name } = template.metadata;
    const wanted = template.spec.snapshots.golden === "Auto" ? ["Ready", "Golden"] : ["Ready"];
    const untilMs = performance.now() + 120_000;
    for (;;) {
      const found = await this.#cluster.client.get(templates, name, namespace);
      const holds = found?.status?.conditions?.filter(({ status }) => status === "True").map(({ type }) => type) ?? [];
      if (wanted.every((type) => holds.includes(type))) return;
      if (performance.now() > untilMs) throw new Error(`Template ${name}: ${JSON.stringify(found?.status)}`);
      await delay(200, undefined, { signal: this.#signal });
    }
  }

  /** A new actor that is Ready, and has not run yet. */
  async actor(name: string, templateName: string): Promise<void> {
    await this.#create("actors", {
      apiVersion: "substrate.run/v1alpha1",
      kind: "Actor",
      metadata: { name, namespace },
      spec: { templateRef: { name: templateName } },
    });
    await this.#actor(name, "Ready", (found) =>
      found.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True"),
    );
  }

  async removeActor(name: string): Promise<void> {
    await this.#cluster.client.delete(actors, name, namespace);
  }

  /** Milliseconds from the call until the operation's result is seen. */
  suspend(name: string, mode: "Async" | "Sync"): Promise<number> {
    return this.#operation(name, "suspend", { mode });
  }

  /** Likewise, of a resume that nobody's request asks for. */
  resumeByApi(name: string): Promise<number> {
    return this.#operation(name, "resume", {});
  }

  /** What the node says of its last suspend. */
  async checkpointMs(name: string): Promise<number> {
    const { items } = operationsSchema.parse(
      await this.#cluster.client.request("GET", subresource(name, "operations"), { signal: this.#signal }),
    );
    const phases = items.find(({ type }) => type === "Suspend")?.phases;
    const checkpoint = phases?.find((phase) => phase.name === "checkpoint");
    if (checkpoint === undefined) throw new Error(`the operations of ${name} have no suspend with a checkpoint`);
    return checkpoint.ms;
  }

  async #operation(name: string, verb: "suspend" | "resume", body: object): Promise<number> {
    const startMs = performance.now();
    const answer = await this.#cluster.client.request("POST", subresource(name, verb), { body, signal: this.#signal });
    const { operationId } = operationSchema.parse(answer);
    const { status } = await this.#actor(name, `operation ${operationId}`, (found) => {
      const last = found.status?.lastOperation;
      return last?.id === operationId ? last.result !== "Running" : false;
    });
    const elapsedMs = performance.now() - startMs;
    if (status?.lastOperation?.result !== "Succeeded")
      throw new Error(`${verb} of ${name}: ${status?.lastOperation?.message}`);
    return elapsedMs;
  }

  /** Milliseconds until the first byte of an answer that touches little of the memory. */
  async resume(name: string): Promise<number> {
    return this.request(name, "GET", "/");
  }

  /** Milliseconds until every page was read. */
  async touch(name: string): Promise<number> {
    return this.request(name, "POST", "/touch");
  }

  /** Resolves when the node has nothing of the actor any more: its next resume is one from the store. */
  async detached(name: string): Promise<void> {
    const { metadata } = await this.#actor(name, "detach", (found) => found.status?.assignment?.nodeName === undefined);
    const { nodeDir } = this.#cluster;
    if (nodeDir !== undefined && readdirSync(join(nodeDir, "actors")).includes(metadata.uid ?? "")) {
      throw new Error(`files of ${name} are still on the node`);
    }
  }

  async remove(name: string): Promise<void> {
    await this.removeActor(name);
    await this.#cluster.client.delete(templates, name, namespace);
  }

  async close(): Promise<void> {
    this.#end.abort(new Error("the benchmark's client was closed"));
    await this.#router.close();
  }

  /**
   * Milliseconds until the first byte; the rest is read and thrown away. A wake that takes longer than the router waits goes
   * on, and so does its measurement.
   */
  async request(name: string, method: "GET" | "POST", path: string): Promise<number> {
    const startMs = performance.now();
    for (;;) {
      const { statusCode, body } = await this.#router.request({
        method,
        path,
        headers: { "substrate-actor": `${namespace}/${name}` },
        signal: this.#signal,
      });
      const elapsedMs = performance.now() - startMs;
      const text = await body.text();
      if (statusCode === 200) return elapsedMs;
      const isWaking = statusCode === 503 && text.includes('"NOT_READY"');
      if (!isWaking || elapsedMs > WAKE_TIMEOUT_MS)
        throw new Error(`${method} ${path} of ${name} answered ${statusCode}: ${text}`);
    }
  }

  async #create(plural: "templates" | "actors", body: object): Promise<void> {
    await this.#cluster.client.request("POST", `/apis/substrate.run/v1alpha1/namespaces/${namespace}/${plural}`, {
      body,
      signal: this.#signal,
    });
  }

  #actor(name: string, what: string, test: (actor: Actor) => boolean | undefined): Promise<Actor> {
    return new Promise((resolve, reject) => {
      const look = (actor: Actor | undefined): void => {
        if (actor?.metadata.name !== name || test(actor) !== true) return;
        end();
        resolve(actor);
      };
      const end = (): void => {
        stop();
        clearTimeout(timer);
        this.#signal.removeEventListener("abort", giveUp);
      };
      const giveUp = (): void => {
        end();
        reject(this.#signal.reason as Error);
      };
      const stop = this.#actors.onChange((_key, actor) => {
        look(actor);
      });
      const timer = setTimeout(() => {
        end();
        reject(new Error(`${what} of ${name}: not within 180 s`));
      }, 180_000);
      this.#signal.addEventListener("abort", giveUp);
      if (this.#signal.aborted) giveUp();
      else look(this.#actors.get(namespace, name));
    });
  }
}
