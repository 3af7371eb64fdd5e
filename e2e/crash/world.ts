import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Actor, actors, type LastOperation, snapshots, templates } from "@substrate/crds/index.ts";
import { buildCounter } from "@substrate/examples/programs.ts";
import { type LocalCluster } from "@substrate/local/cluster.ts";
import { z } from "zod";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { Armed, type Victim } from "./armed.ts";
import { Witness } from "./witness.ts";

const namespace = "default";
const pollMs = 25;
/** Beyond any deadline of the product's own: wakeTimeout, drainTimeout, back-off. */
const operationMs = 60_000;
/** docs/architecture.md: an operation is shown within two seconds, or the operator that took it is gone, and it with it. */
const shownMs = 5_000;
const restartMs = 30_000;

const calmTemplates = ["stay", "move", "volume-stay", "volume-move", "upgraded"] as const;

const operationSchema = z.object({ operationId: z.string() });
const api = "/apis/substrate.run/v1alpha1";
const subresources = "/apis/subresources.substrate.run/v1alpha1";

interface Policy {
  uploadDelay: string;
  uploadWithin: string;
  detachDelay: string;
}
const quiet: Policy = { uploadDelay: "1h", uploadWithin: "2h", detachDelay: "1h" };
const leaving: Policy = { ...quiet, detachDelay: "0s" };

/**
 * But for `chaos`, nothing happens by itself, so that what a test counts is what it asked for. What is not in `quiet`
 * leaves the node once it is stored. Where there is a volume, the counter's file lies in it.
 */
const templateSpecs = {
  stay: { policy: quiet },
  move: { policy: leaving },
  "volume-stay": { policy: quiet, volume: true },
  "volume-move": { policy: leaving, volume: true },
  upgraded: { policy: quiet, volume: true, upgrade: "OnNextResume" },
  chaos: { policy: { uploadDelay: "1s", uploadWithin: "5s", detachDelay: "2s" } },
} satisfies Record<string, { policy: Policy; volume?: true; upgrade?: string }>;
export type TemplateName = keyof typeof templateSpecs;

/** @param revision shows in the program's environment: another one makes a new revision. */
function templateSpec(name: TemplateName, image: string, revision: number): object {
  const { policy, volume, upgrade }: { policy: Policy; volume?: true; upgrade?: string } = templateSpecs[name];
  return {
    containers: [
      {
        name: "counter",
        image,
        ports: [{ name: "http", containerPort: 8080 }],
        readyz: { httpGet: { path: "/readyz", port: 8080 } },
        resources: { limits: { cpu: "1", memory: "64Mi" } },
        env: [{ name: "REVISION", value: String(revision) }],
        ...(volume === true && { volumeMounts: [{ name: "count", mountPath: "/var/lib/counter" }] }),
      },
    ],
    ...(volume === true && { volumes: [{ name: "count", durableDir: {} }] }),
    ...(upgrade !== undefined && { upgrade }),
    snapshots: { ...policy, ...(upgrade !== undefined && { golden: "Never" }) },
  };
}

/** A cluster whose atelet and operator can be made to end at any of their operations, and hands to work it with. */
export class CrashWorld {
  readonly cluster: LocalCluster;
  readonly armed: Armed;
  readonly #test: TestCluster;
  #image = "";
  #revision = 1;

  private constructor(test: TestCluster, armed: Armed) {
    this.#test = test;
    this.cluster = test.cluster;
    this.armed = armed;
  }

  /** With these Templates Ready. */
  static async start(names: readonly TemplateName[] = calmTemplates): Promise<CrashWorld> {
    const armed = new Armed();
    try {
      const test = await startTestCluster(armed.environment);
      const world = new CrashWorld(test, armed);
      try {
        await world.#applyTemplates(names);
        return world;
      } catch (error) {
        await test.stop();
        throw error;
      }
    } catch (error) {
      armed.remove();
      throw error;
    }
  }

  async stop(): Promise<void> {
    this.armed.remove();
    await this.#test.stop();
  }

  async #applyTemplates(names: readonly TemplateName[]): Promise<void> {
    const folder = join(this.cluster.stateDir, "examples");
    mkdirSync(folder, { recursive: true });
    const { reference } = await buildCounter(join(folder, "counter"));
    this.#image = reference;
    await Promise.all(
      names.map(async (name) => {
        await this.cluster.client.request("POST", `${api}/namespaces/${namespace}/templates`, {
          body: {
            apiVersion: "substrate.run/v1alpha1",
            kind: "Template",
            metadata: { name, namespace },
            spec: templateSpec(name, reference, this.#revision),
          },
        });
        await this.#templateReady(name);
      }),
    );
  }

  /** Of its newest revision. */
  async #templateReady(name: TemplateName): Promise<void> {
    await this.until(`Template ${name} Ready`, operationMs, async () => {
      const template = await this.cluster.client.get(templates, name, namespace);
      const isSeen = template?.status?.observedGeneration === template?.metadata.generation;
      const golden = template?.status?.conditions?.find(({ type }) => type === "Golden")?.status;
      return isSeen && template?.status?.phase === "Ready" && golden !== "Unknown";
    });
  }

  /** A new revision of the Template, Ready. */
  async revise(name: TemplateName): Promise<void> {
    this.#revision += 1;
    await this.cluster.client.request("PATCH", `${api}/namespaces/${namespace}/templates/${name}`, {
      body: { spec: templateSpec(name, this.#image, this.#revision) },
      contentType: "application/merge-patch+json",
    });
    await this.#templateReady(name);
  }

  witness(name: string): Witness {
    return new Witness(`${this.cluster.routerUrl}/`, name);
  }

  /** @param source a tag's Snapshot. */
  async create(name: string, templateName: TemplateName, source?: string): Promise<void> {
    await this.cluster.client.request("POST", `${api}/namespaces/${namespace}/actors`, {
      body: {
        apiVersion: "substrate.run/v1alpha1",
        kind: "Actor",
        metadata: { name, namespace },
        spec: {
          templateRef: { name: templateName },
          ...(source !== undefined && { source: { snapshotRef: { name: source } } }),
        },
      },
    });
  }

  /** Resolves when the tag is in the store. */
  async tag(actor: string, name: string): Promise<void> {
    await this.cluster.client.request("POST", `${api}/namespaces/${namespace}/snapshots`, {
      body: {
        apiVersion: "substrate.run/v1alpha1",
        kind: "Snapshot",
        metadata: { name, namespace },
        spec: { actorRef: { name: actor }, tag: name },
      },
    });
    await this.until(`tag ${name}`, operationMs, async () => {
      const tag = await this.cluster.client.get(snapshots, name, namespace);
      return tag?.status?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED";
    });
  }

  /** Resolves when the tag's object, and so its data, is gone. */
  async untag(name: string): Promise<void> {
    await this.cluster.client.delete(snapshots, name, namespace);
    await this.until(`tag ${name} gone`, operationMs, async () => {
      return (await this.cluster.client.get(snapshots, name, namespace)) === undefined;
    });
  }

  /** All tags, those that upgrades have made too. */
  async untagAll(): Promise<void> {
    const { items } = await this.cluster.client.list(snapshots, { namespace });
    const tags = items.filter(({ spec }) => spec.tag !== undefined);
    await Promise.all(tags.map(({ metadata }) => this.untag(metadata.name)));
  }

  async remove(name: string): Promise<void> {
    await this.cluster.client.delete(actors, name, namespace);
  }

  async actor(name: string): Promise<Actor | undefined> {
    return this.cluster.client.get(actors, name, namespace);
  }

  async gone(name: string): Promise<void> {
    await this.until(`actor ${name} gone`, operationMs, async () => (await this.actor(name)) === undefined);
  }

  async detached(name: string): Promise<void> {
    await this.until(`actor ${name} off the node`, operationMs, async () => {
      return (await this.actor(name))?.status?.assignment?.nodeName === undefined;
    });
  }

  /** Asks once. @returns the operation's id, or undefined if nobody took it. */
  async ask(name: string, mode: "Async" | "Sync"): Promise<string | undefined> {
    const path = `${subresources}/namespaces/${namespace}/actors/${name}/suspend`;
    try {
      return operationSchema.parse(await this.cluster.client.request("POST", path, { body: { mode } })).operationId;
    } catch (error) {
      if (error instanceof z.ZodError || !(error instanceof Error)) throw error;
      return undefined;
    }
  }

  /** How the operation ended; undefined if it was lost with an operator that had not shown it yet. */
  async outcome(name: string, id: string): Promise<LastOperation | undefined> {
    const lostMs = performance.now() + shownMs;
    const { last } = await this.until(`operation ${id} of ${name} ended`, operationMs, async () => {
      const operation = (await this.actor(name))?.status?.lastOperation;
      if (operation?.id !== id) return performance.now() > lostMs && { last: undefined };
      return operation.result !== "Running" && { last: operation };
    });
    return last;
  }

  /** Suspends, asking again as long as nobody takes it or it fails for a reason that passes. */
  async suspend(name: string, mode: "Async" | "Sync"): Promise<void> {
    let last = "nobody took it";
    const done = async (): Promise<boolean> => {
      const id = await this.ask(name, mode);
      if (id === undefined) return false;
      const ended = await this.outcome(name, id);
      last = ended?.message ?? "it was lost";
      return ended?.result === "Succeeded";
    };
    await this.until(`a ${mode} suspend of ${name}`, operationMs, done).catch((error: unknown) => {
      throw new Error(last, { cause: error });
    });
  }

  /** Waits until the victim, which has ended, serves again. */
  async restarted(victim: Victim, before: number | undefined): Promise<void> {
    const { cluster } = this;
    await this.until(`${victim} ended`, restartMs, () => Promise.resolve(cluster.pid(victim) !== before));
    if (victim === "operator") {
      // as an operator that ends in order would: that its successor waits for the Lease's end is leadership.test.ts's
      await this.#giveLeaseBack();
      await cluster.start("operator");
    }
    await cluster.ready(restartMs);
  }

  async #giveLeaseBack(): Promise<void> {
    const path = "/apis/coordination.k8s.io/v1/namespaces/substrate-system/leases/substrate-operator";
    await this.cluster.client.request("PATCH", path, {
      body: { spec: { holderIdentity: "" } },
      contentType: "application/merge-patch+json",
    });
  }

  /** Resolves with the first value that isn't undefined or false. @throws, saying what was waited for, after the deadline. */
  async until<T>(what: string, deadlineMs: number, look: () => Promise<T | undefined | false>): Promise<T> {
    const end = performance.now() + deadlineMs;
    let last: unknown;
    for (;;) {
      try {
        const found = await look();
        if (found !== undefined && found !== false) return found;
      } catch (error) {
        last = error;
      }
      if (performance.now() > end) throw new Error(`${what}: not within ${deadlineMs / 1000} s`, { cause: last });
      await delay(pollMs);
    }
  }
}
