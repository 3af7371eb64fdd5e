import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Actor, actors, type Snapshot, snapshots, templates } from "@substrate/crds/index.ts";
import { buildCounter } from "@substrate/examples/programs.ts";
import { type LocalCluster } from "@substrate/local/cluster.ts";
import { z } from "zod";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { Armed, type Victim } from "./armed.ts";
import { Witness } from "./witness.ts";

export const namespace = "default";
const pollMs = 25;
/** Beyond any deadline of the product's own: wakeTimeout, drainTimeout, back-off. */
const operationMs = 60_000;
const restartMs = 30_000;

const operationSchema = z.object({ operationId: z.string() });
const api = "/apis/substrate.run/v1alpha1";
const subresources = "/apis/subresources.substrate.run/v1alpha1";

/**
 * Nothing happens by itself in two of them, so that what a test counts is what it asked for. `stay`: asleep, its files
 * stay on the node. `move`: once stored, it leaves the node. `chaos`: all happens as soon as it may.
 */
const snapshotPolicies = {
  stay: { uploadDelay: "1h", uploadWithin: "2h", detachDelay: "1h" },
  move: { uploadDelay: "1h", uploadWithin: "2h", detachDelay: "0s" },
  chaos: { uploadDelay: "1s", uploadWithin: "5s", detachDelay: "2s" },
} as const;
export type TemplateName = keyof typeof snapshotPolicies;

function template(name: TemplateName, image: string): object {
  return {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Template",
    metadata: { name, namespace },
    spec: {
      containers: [
        {
          name: "counter",
          image,
          ports: [{ name: "http", containerPort: 8080 }],
          readyz: { httpGet: { path: "/readyz", port: 8080 } },
          resources: { limits: { cpu: "1", memory: "64Mi" } },
        },
      ],
      snapshots: snapshotPolicies[name],
    },
  };
}

/** A cluster whose atelet and operator can be made to end at any of their operations, and hands to work it with. */
export class CrashWorld {
  readonly cluster: LocalCluster;
  readonly armed: Armed;
  readonly #test: TestCluster;

  private constructor(test: TestCluster, armed: Armed) {
    this.#test = test;
    this.cluster = test.cluster;
    this.armed = armed;
  }

  /** With these Templates Ready. */
  static async start(names: readonly TemplateName[] = ["stay", "move"]): Promise<CrashWorld> {
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
    for (const name of names) {
      await this.cluster.client.request("POST", `${api}/namespaces/${namespace}/templates`, {
        body: template(name, reference),
      });
      await this.until(`Template ${name} Ready`, operationMs, async () => {
        return (await this.cluster.client.get(templates, name, namespace))?.status?.phase === "Ready";
      });
    }
  }

  witness(name: string): Witness {
    return new Witness(`${this.cluster.routerUrl}/`, name);
  }

  async create(name: string, templateName: TemplateName): Promise<void> {
    await this.cluster.client.request("POST", `${api}/namespaces/${namespace}/actors`, {
      body: {
        apiVersion: "substrate.run/v1alpha1",
        kind: "Actor",
        metadata: { name, namespace },
        spec: { templateRef: { name: templateName } },
      },
    });
  }

  async remove(name: string): Promise<void> {
    await this.cluster.client.delete(actors, name, namespace);
  }

  async actor(name: string): Promise<Actor | undefined> {
    return this.cluster.client.get(actors, name, namespace);
  }

  async snapshots(): Promise<Snapshot[]> {
    return (await this.cluster.client.list(snapshots, { namespace })).items;
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

  /** Suspends, asking again as long as nobody takes it or it fails for a reason that passes. */
  async suspend(name: string, mode: "Async" | "Sync"): Promise<void> {
    let last = "nobody took it";
    const done = async (): Promise<boolean> => {
      const id = await this.ask(name, mode);
      if (id === undefined) return false;
      const ended = await this.until(`suspend of ${name}`, operationMs, async () => {
        const operation = (await this.actor(name))?.status?.lastOperation;
        return operation?.id === id && operation.result !== "Running" && operation;
      });
      last = ended.message ?? "";
      return ended.result === "Succeeded";
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
