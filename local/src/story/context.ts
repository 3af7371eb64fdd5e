import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Actor, actors, type Snapshot, snapshots } from "@substrate/crds/index.ts";
import { buildCounter } from "@substrate/examples/programs.ts";
import { renderExample } from "@substrate/examples/render.ts";
import { Agent, request } from "undici";
import { z } from "zod";
import { type LocalCluster } from "../cluster.ts";
import { bundlePlugin, linkKubectl } from "../plugin.ts";

const POLL_MS = 25;

const countSchema = z.object({ memory: z.number(), file: z.number(), pid: z.number(), startedAt: z.string() });
const acceptedSchema = z.object({ operationId: z.string() });
export type Count = z.infer<typeof countSchema>;

export interface Answer {
  status: number;
  body: string;
  retryAfter: string | undefined;
}

/** A person's hands for the story: kubectl, the plugin, a browser, and eyes on node and store. */
export class StoryContext {
  readonly cluster: LocalCluster;
  readonly namespace = "default";
  readonly name: string;
  readonly #bin: string;
  readonly #agent = new Agent({ connections: 100, headersTimeout: 60_000 });

  private constructor(cluster: LocalCluster, bin: string, name = "counter") {
    this.cluster = cluster;
    this.name = name;
    this.#bin = bin;
  }

  /** Bundles the plugin and builds the example's image into the cluster's folder. */
  static async create(cluster: LocalCluster): Promise<StoryContext> {
    const bin = join(cluster.stateDir, "bin");
    mkdirSync(bin, { recursive: true });
    await bundlePlugin(bin);
    linkKubectl(bin, cluster.tools.kubectl);
    const examples = join(cluster.stateDir, "examples");
    mkdirSync(examples, { recursive: true });
    const { reference } = await buildCounter(join(examples, "counter"));
    writeFileSync(join(examples, "counter.yaml"), await renderExample("counter", { image: reference }));
    return new StoryContext(cluster, bin);
  }

  /** The same hands on another actor; closed apart from this one. */
  of(name: string): StoryContext {
    return new StoryContext(this.cluster, this.#bin, name);
  }

  get manifest(): string {
    return join(this.cluster.stateDir, "examples", "counter.yaml");
  }

  /** Runs kubectl with the plugin on its PATH; throws with what it wrote unless it ends with 0. */
  async kubectl(...args: string[]): Promise<string> {
    const { code, output } = await this.tryKubectl(...args);
    if (code !== 0) throw new Error(`kubectl ${args.join(" ")} ended with ${code}: ${output.trim()}`);
    return output;
  }

  tryKubectl(...args: string[]): Promise<{ code: number; output: string }> {
    const child = spawn(join(this.#bin, "kubectl"), args, {
      // node for the plugin's first line is the system's own, as in a person's shell
      env: {
        PATH: `${this.#bin}:/usr/local/bin:/usr/bin:/bin`,
        KUBECONFIG: this.cluster.kubeconfig,
        HOME: this.cluster.stateDir,
      },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: 120_000,
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code) => {
        resolve({ code: code ?? -1, output });
      });
    });
  }

  async get(path = "/"): Promise<Answer> {
    const response = await request(`${this.cluster.routerUrl}${path}`, {
      headers: { "substrate-actor": `${this.namespace}/${this.name}` },
      dispatcher: this.#agent,
    });
    const retryAfter = response.headers["retry-after"];
    return {
      status: response.statusCode,
      body: await response.body.text(),
      retryAfter: typeof retryAfter === "string" ? retryAfter : undefined,
    };
  }

  /** Of an answer with status 200; throws with any other. */
  async body(path: string): Promise<string> {
    const { status, body } = await this.get(path);
    if (status !== 200) throw new Error(`GET ${path} answered ${status}: ${body}`);
    return body;
  }

  async count(path = "/"): Promise<Count> {
    return countSchema.parse(JSON.parse(await this.body(path)));
  }

  async actor(): Promise<Actor> {
    const actor = await this.cluster.client.get(actors, this.name, this.namespace);
    if (actor === undefined) throw new Error(`there is no actor ${this.namespace}/${this.name}`);
    return actor;
  }

  /** As `kubectl ate suspend` does, without starting a program for it. */
  async suspend(mode: "Async" | "Sync"): Promise<void> {
    const path = `/apis/subresources.substrate.run/v1alpha1/namespaces/${this.namespace}/actors/${this.name}/suspend`;
    const { operationId } = acceptedSchema.parse(await this.cluster.client.request("POST", path, { body: { mode } }));
    const ended = await this.until(`the suspend of ${this.name} ends`, 60_000, async () => {
      const last = (await this.actor()).status?.lastOperation;
      return last?.id === operationId && last.result !== "Running" && last;
    });
    if (ended.result === "Failed") throw new Error(`suspend of ${this.name}: ${ended.message ?? ""}`);
  }

  /** Of actors: a Template's golden snapshot is not among them. */
  async snapshots(): Promise<Snapshot[]> {
    const { items } = await this.cluster.client.list(snapshots, { namespace: this.namespace });
    return items.filter(({ spec }) => spec.actorRef !== undefined);
  }

  /** `<generation> <state>` of the status, newest first. */
  async storageStates(): Promise<string[]> {
    return ((await this.actor()).status?.snapshots ?? []).map(
      ({ generation, storageState }) => `${generation} ${storageState.replace("SNAPSHOT_STORAGE_STATE_", "")}`,
    );
  }

  /** A sample of a part's metrics; 0 if it has no such series yet. */
  async metric(part: "operator" | "atelet" | "router", series: string): Promise<number> {
    const { body } = await request(`${this.cluster.metricsUrls[part]}/metrics`, { dispatcher: this.#agent });
    const line = (await body.text()).split("\n").find((text) => text.startsWith(`${series} `));
    return line === undefined ? 0 : Number(line.slice(series.length + 1));
  }

  /** Names of files of the actor in the store. */
  storedFiles(uid: string): string[] {
    return readdirSync(this.cluster.storeDir, { recursive: true, encoding: "utf8" }).filter((name) =>
      name.includes(uid),
    );
  }

  nodeFiles(uid: string): string[] {
    return readdirSync(join(this.cluster.nodeDir, "actors")).filter((name) => name === uid);
  }

  /** Resolves with the first value that isn't undefined; throws, saying what was waited for, after the deadline. */
  async until<T>(what: string, deadlineMs: number, look: () => Promise<T | undefined | false>): Promise<T> {
    const endMs = performance.now() + deadlineMs;
    let last: unknown;
    for (;;) {
      try {
        const found = await look();
        if (found !== undefined && found !== false) return found;
      } catch (error) {
        last = error;
      }
      if (performance.now() > endMs) {
        throw new Error(`${what}: not within ${deadlineMs / 1000} s`, { cause: last });
      }
      await delay(POLL_MS);
    }
  }

  async close(): Promise<void> {
    await this.#agent.close();
  }
}
