import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Actor, actors } from "@substrate/crds/index.ts";
import { renderExample } from "@substrate/examples/render.ts";
import { buildImages } from "@substrate/images/build.ts";
import { type ExampleName } from "@substrate/images/table.ts";
import { command } from "@substrate/local/command.ts";
import { bundlePlugin, linkKubectl } from "@substrate/local/plugin.ts";
import { z } from "zod";
import { eventually } from "../support/poll.ts";
import { type TestCluster } from "./harness/cluster.ts";
import { type InstallOptions, installSubstrate } from "./harness/substrate.ts";

const ROLLOUT_TIMEOUT_S = 180;
/** Room for a wake that has to wait for a node, and for a busy machine. */
const ANSWER_TIMEOUT_MS = 90_000;

const countSchema = z.object({ memory: z.number(), file: z.number(), pid: z.number(), startedAt: z.string() });
export type Count = z.infer<typeof countSchema>;

/** Puts the image of an example into the cluster's registry, from which atelets pull. @returns its reference. */
export async function pushExample(cluster: TestCluster, name: ExampleName): Promise<string> {
  const [image] = await buildImages({ names: [name] });
  if (image === undefined) throw new Error(`no image of example ${name} was built`);
  return cluster.pushImage(image.archive, `${name}:1`);
}

/** Substrate as its chart installs it, and the hands of a person who uses it: kubectl with the plugin, and HTTP. */
export class Installation {
  readonly cluster: TestCluster;
  readonly release: string;
  readonly namespace: string;
  readonly #bin: string;

  private constructor(cluster: TestCluster, { release = "substrate", namespace = "substrate-system" }: InstallOptions) {
    this.cluster = cluster;
    this.release = release;
    this.namespace = namespace;
    this.#bin = join(cluster.folder, "bin");
  }

  /** Resolves when all parts are ready and the verbs are served. */
  static async install(cluster: TestCluster, options: InstallOptions = {}): Promise<Installation> {
    const made = new Installation(cluster, options);
    mkdirSync(made.#bin, { recursive: true });
    await bundlePlugin(made.#bin);
    linkKubectl(made.#bin, cluster.tools.kubectl);
    await installSubstrate(cluster, { ...options, examples: [] });
    await made.ready();
    return made;
  }

  /** Objects of the chart begin with it. */
  get fullname(): string {
    return this.release.includes("substrate") ? this.release : `${this.release}-substrate`;
  }

  /** Waits until every part runs what was installed last. */
  async ready(): Promise<void> {
    for (const part of ["daemonset/atelet", "deployment/operator", "deployment/router"]) await this.rolledOut(part);
    await this.cluster.kubectl([
      ...["wait", "apiservice/v1alpha1.subresources.substrate.run", "--for=condition=Available"],
      `--timeout=${ROLLOUT_TIMEOUT_S}s`,
    ]);
  }

  /** @param part `KIND/PART`, e.g. daemonset/atelet. */
  async rolledOut(part: string): Promise<void> {
    const args = ["-n", this.namespace, "rollout", "status", this.object(part), `--timeout=${ROLLOUT_TIMEOUT_S}s`];
    await this.cluster.kubectl(args, { timeoutMs: (ROLLOUT_TIMEOUT_S + 10) * 1000 });
  }

  /** `daemonset/atelet` as it is called in this release. */
  object(part: string): string {
    return part.replace("/", `/${this.fullname}-`);
  }

  /** As a person's shell runs it, with the plugin. @throws with its stderr unless it ends with 0. */
  kubectl(...args: string[]): Promise<string> {
    return command(join(this.#bin, "kubectl"), args, {
      timeoutMs: 120_000,
      environment: { PATH: `${this.#bin}:/usr/local/bin:/usr/bin:/bin`, KUBECONFIG: this.cluster.kubeconfig },
    });
  }

  /** Applies the example, Template and Actor, under another name, and waits until the Template is Ready. @returns the name. */
  async applyCounter(name: string, image: string): Promise<string> {
    const text = await renderExample("counter", { image });
    await this.cluster.kubectl(["apply", "-f", "-"], { input: text.replaceAll("name: counter\n", `name: ${name}\n`) });
    await this.cluster.kubectl(["wait", "--for=condition=Ready", `template/${name}`, "--timeout=100s"]);
    return name;
  }

  /** One request through the router's Service, as a program in the cluster makes it. */
  async get(actor: string, path = "/"): Promise<{ status: number; body: string }> {
    const response = await this.cluster.fetch(`http://${this.fullname}-router.${this.namespace}.svc${path}`, {
      headers: { "substrate-actor": `default/${actor}` },
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    });
    return { status: response.status, body: await response.text() };
  }

  /** Of an answer with status 200; throws with any other. */
  async count(actor: string): Promise<Count> {
    const { status, body } = await this.get(actor);
    if (status !== 200) throw new Error(`GET / of ${actor} answered ${status}: ${body}`);
    return countSchema.parse(JSON.parse(body));
  }

  async actor(name: string): Promise<Actor> {
    const found = await this.cluster.client.get(actors, name, "default");
    if (found === undefined) throw new Error(`there is no actor default/${name}`);
    return found;
  }

  /** The node that the actor is assigned to. */
  async nodeOf(name: string): Promise<string> {
    const node = (await this.actor(name)).status?.assignment?.nodeName;
    if (node === undefined) throw new Error(`actor ${name} is on no node`);
    return node;
  }

  /** Waits until the newest generation is in the store. */
  async saved(name: string): Promise<void> {
    await eventually(
      async () => {
        const newest = (await this.actor(name)).status?.snapshots?.[0];
        if (newest?.storageState !== "SNAPSHOT_STORAGE_STATE_COMPLETED") {
          throw new Error(`the newest snapshot of ${name} is ${newest?.storageState ?? "not there"}`);
        }
      },
      { deadlineMs: ANSWER_TIMEOUT_MS, everyMs: 250 },
    );
  }
}
