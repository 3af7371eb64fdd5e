import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Actor, actors } from "@substrate/crds/index.ts";
import { bundlePlugin, linkKubectl } from "@substrate/local/plugin.ts";
import { Agent, request } from "undici";
import { buildGlutton } from "../programs/glutton.ts";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { eventually } from "../support/poll.ts";

export const namespace = "default";

export interface Answer {
  status: number;
  body: string;
  /** Of an error: what it is, and what is said. */
  code?: string | undefined;
  message: string;
  retryAfter: string | undefined;
}

/** A person's hands on a whole cluster: kubectl, its plugin, requests, and what is said of it all. */
export class Hands {
  readonly whole: TestCluster;
  /** The image of e2e/programs/glutton. */
  readonly image: string;
  readonly #bin: string;
  readonly #agent = new Agent({ headersTimeout: 60_000 });

  private constructor(whole: TestCluster, image: string, bin: string) {
    this.whole = whole;
    this.image = image;
    this.#bin = bin;
  }

  static async start(): Promise<Hands> {
    const whole = await startTestCluster();
    const { stateDir, tools } = whole.cluster;
    const bin = join(stateDir, "bin");
    mkdirSync(bin, { recursive: true });
    linkKubectl(bin, tools.kubectl);
    const [{ reference }] = await Promise.all([buildGlutton(join(stateDir, "glutton")), bundlePlugin(bin)]);
    return new Hands(whole, reference, bin);
  }

  async stop(): Promise<void> {
    await this.#agent.close();
    await this.whole.stop();
  }

  /** Runs kubectl with the plugin on its PATH; `input` is for its standard input. */
  kubectl(args: readonly string[], input?: unknown): Promise<{ code: number; output: string }> {
    const { cluster } = this.whole;
    const child = spawn(join(this.#bin, "kubectl"), args, {
      env: {
        PATH: `${this.#bin}:/usr/local/bin:/usr/bin:/bin`,
        KUBECONFIG: cluster.kubeconfig,
        HOME: cluster.stateDir,
      },
      timeout: 90_000,
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
    child.stdin.end(input === undefined ? "" : JSON.stringify(input));
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code) => {
        resolve({ code: code ?? -1, output });
      });
    });
  }

  ate(...args: string[]): Promise<{ code: number; output: string }> {
    return this.kubectl(["ate", ...args]);
  }

  async apply(...items: object[]): Promise<void> {
    const list = { apiVersion: "v1", kind: "List", items };
    const { code, output } = await this.kubectl(["apply", "-n", namespace, "-f", "-"], list);
    if (code !== 0) throw new Error(output);
  }

  /** Applies it, and waits until the router has heard of it. */
  async make(name: string, template: string, spec: object = {}, metadata: object = {}): Promise<void> {
    await this.apply(this.actor(name, template, spec, metadata));
    await eventually(
      async () => {
        const { status, body } = await this.get(name, "GET", "/readyz");
        if (status === 404) throw new Error(body);
      },
      { deadlineMs: 10_000 },
    );
  }

  /** @param container what differs in its only container. */
  template(name: string, container: object = {}, spec: { snapshots?: object; wakeTimeout?: string } = {}): object {
    const { snapshots, ...rest } = spec;
    return {
      apiVersion: "substrate.run/v1alpha1",
      kind: "Template",
      metadata: { name },
      spec: {
        containers: [
          {
            name: "glutton",
            image: this.image,
            ports: [{ name: "http", containerPort: 8080 }],
            readyz: { httpGet: { path: "/readyz", port: 8080 } },
            resources: { limits: { cpu: "1", memory: "64Mi" } },
            ...container,
          },
        ],
        snapshots: { store: "default", golden: "Never", uploadDelay: "5m", ...snapshots },
        ...rest,
      },
    };
  }

  actor(name: string, template: string, spec: object = {}, metadata: object = {}): object {
    return {
      apiVersion: "substrate.run/v1alpha1",
      kind: "Actor",
      metadata: { name, ...metadata },
      spec: { templateRef: { name: template }, ...spec },
    };
  }

  async get(name: string, method: "GET" | "POST" = "GET", path = "/"): Promise<Answer> {
    const response = await request(`${this.whole.cluster.routerUrl}${path}`, {
      method,
      headers: { "substrate-actor": `${namespace}/${name}` },
      dispatcher: this.#agent,
    });
    const retryAfter = response.headers["retry-after"];
    const body = await response.body.text();
    const { error } =
      response.statusCode < 400 ? {} : (JSON.parse(body) as { error?: { code: string; message: string } });
    return {
      status: response.statusCode,
      body,
      code: error?.code,
      message: error?.message ?? "",
      retryAfter: typeof retryAfter === "string" ? retryAfter : undefined,
    };
  }

  /** How often its program has been asked, this time included. */
  async count(name: string): Promise<number> {
    const { status, body } = await this.get(name);
    if (status !== 200) throw new Error(`${name}: ${status} ${body}`);
    return (JSON.parse(body) as { count: number }).count;
  }

  async seen(name: string): Promise<Actor> {
    const found = await this.whole.cluster.client.get(actors, name, namespace);
    if (found === undefined) throw new Error(`there is no actor ${name}`);
    return found;
  }

  async suspend(name: string, mode: "async" | "sync"): Promise<void> {
    const { code, output } = await this.ate("suspend", name, "--mode", mode);
    if (code !== 0) throw new Error(output);
  }

  /** What `kubectl describe` ends up saying; resolves as soon as that has the text. */
  described(kind: "actor" | "template", name: string, text: string | RegExp, deadlineMs = 20_000): Promise<string> {
    return eventually(
      async () => {
        const { output } = await this.kubectl(["describe", kind, name, "-n", namespace]);
        if (output.search(text) < 0) throw new Error(`${kind} ${name} says nothing of ${String(text)}:\n${output}`);
        return output;
      },
      { deadlineMs, everyMs: 300 },
    );
  }

  /** Folder of a generation's image on the node. */
  async imageDir(name: string, generation: number): Promise<string> {
    const { uid = "" } = (await this.seen(name)).metadata;
    return join(this.whole.cluster.nodeDir, "actors", uid, "generations", String(generation), "image");
  }
}
