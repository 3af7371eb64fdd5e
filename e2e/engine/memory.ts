import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Template } from "@substrate/crds/index.ts";
import { type LocalCluster, startLocalCluster } from "@substrate/local/cluster.ts";
import { request } from "undici";
import { z } from "zod";
import { Product } from "../bench/product.ts";
import { buildGlutton } from "../programs/glutton.ts";
import { LoopDisk, noSlowDisk } from "../support/loop-disk.ts";
import { tools } from "../support/tools.ts";

const MIB = 2 ** 20;
const HELD_MIB = 500;
export const DIRTIED_MIB = 64;
const LIMIT_MIB = 600;
/** The limit that is none: more than is held and written. Four of them run at once, and their images are lent for. */
const ROOMY_MIB = 1200;
/** Two generations of eight actors. */
const DISK_BYTES = 16 * 1024 * MIB;
/** The disk on which careless versions failed. */
export const SLOW_BYTES_PER_SECOND = 175e6;

const debugSchema = z.object({
  ledger: z.object({ limitBytes: z.number(), unbookedBytes: z.number(), lentBytes: z.number() }),
  pod: z.object({ usageBytes: z.number(), limitBytes: z.number() }),
  unwritten: z.object({ dirtyBytes: z.number(), writebackBytes: z.number() }),
  followed: z.array(z.object({ paths: z.array(z.string()), bytes: z.number() })),
});
export type LedgerLook = z.infer<typeof debugSchema>;

/** What became of cycles of wake, dirty, suspend. */
export interface Cycles {
  suspends: number;
  failures: string[];
  checkpointMs: number[];
}

/** A local cluster whose node's disk can be made slow, with gluttons at their limits. */
export class MemoryRig {
  readonly cluster: LocalCluster;
  readonly disk: LoopDisk;
  readonly product: Product;
  readonly #dir: string;
  readonly #image: string;

  private constructor(dir: string, disk: LoopDisk, cluster: LocalCluster, product: Product, image: string) {
    this.#dir = dir;
    this.disk = disk;
    this.cluster = cluster;
    this.product = product;
    this.#image = image;
  }

  static async start(): Promise<MemoryRig> {
    const dir = mkdtempSync(join(tmpdir(), "sub-"));
    const disk = LoopDisk.mount(join(dir, "node"), DISK_BYTES);
    const undo = async (): Promise<void> => {
      await disk.remove();
      rmSync(dir, { recursive: true, force: true });
    };
    try {
      const { reference } = await buildGlutton(join(dir, "glutton"));
      const cluster = await startLocalCluster({ stateDir: dir, tools, fsync: false, say: () => undefined });
      try {
        return new MemoryRig(dir, disk, cluster, await Product.create(cluster), reference);
      } catch (error) {
        await cluster.stop();
        throw error;
      }
    } catch (error) {
      await undo();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await this.product.close();
    await this.cluster.stop();
    await this.disk.remove();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  /** Undefined as a reason: the disk can be slow. */
  get noSlowDisk(): string | undefined {
    return noSlowDisk();
  }

  /** Actors of a Template of their own that hold their memory. */
  async gluttons(template: "tight" | "roomy", names: readonly string[]): Promise<void> {
    await this.template(template, template === "tight" ? LIMIT_MIB : ROOMY_MIB);
    for (const name of names) {
      await this.product.actor(name, template);
      await this.ask(name, `/hold?mib=${HELD_MIB}&kind=random`);
    }
  }

  async template(name: string, memoryMib: number): Promise<void> {
    const template: Template = {
      apiVersion: "substrate.run/v1alpha1",
      kind: "Template",
      metadata: { name, namespace: "default" },
      spec: {
        containers: [
          {
            name: "glutton",
            image: this.#image,
            ports: [{ name: "http", containerPort: 8080 }],
            readyz: { httpGet: { path: "/readyz", port: 8080 } },
            resources: { limits: { cpu: "2", memory: `${memoryMib}Mi` } },
          },
        ],
        snapshots: {
          store: "default",
          uploadDelay: "30m",
          uploadWithin: "1h",
          detachDelay: "1h",
          onSuspend: "Memory",
          durability: "Async",
          history: 1,
          golden: "Never",
        },
        upgrade: "Manual",
        drainTimeout: "10s",
        wakeTimeout: "60s",
      },
    };
    await this.product.template(template);
  }

  async ask(name: string, path: string, method: "GET" | "POST" = "POST"): Promise<string> {
    const { statusCode, body } = await request(this.cluster.routerUrl + path, {
      method,
      headers: { "substrate-actor": `default/${name}` },
      headersTimeout: 120_000,
    });
    const text = await body.text();
    if (statusCode !== 200) throw new Error(`${method} ${path} of ${name} answered ${statusCode}: ${text}`);
    return text;
  }

  /** Wakes, dirties and suspends each of the actors so often, all of them at once. */
  async cycle(names: readonly string[], cycles: number): Promise<Cycles> {
    const all = await Promise.all(names.map((name) => this.#cycleOne(name, cycles)));
    return {
      suspends: all.reduce((sum, { suspends }) => sum + suspends, 0),
      failures: all.flatMap(({ failures }) => failures),
      checkpointMs: all.flatMap(({ checkpointMs }) => checkpointMs),
    };
  }

  async #cycleOne(name: string, cycles: number): Promise<Cycles> {
    const done: Cycles = { suspends: 0, failures: [], checkpointMs: [] };
    for (let cycle = 0; cycle < cycles; cycle += 1) {
      try {
        await this.ask(name, `/dirty?mib=${DIRTIED_MIB}`);
        done.suspends += 1;
        await this.product.suspend(name, "Async");
        done.checkpointMs.push(await this.product.checkpointMs(name));
      } catch (error) {
        done.failures.push(`${name}, cycle ${cycle}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    return done;
  }

  /** What the node's debug endpoint says. */
  async look(): Promise<LedgerLook> {
    const { body } = await request(`${this.cluster.metricsUrls.atelet}/debug/ledger`);
    return debugSchema.parse(await body.json());
  }

  /** A sample of the atelet's metrics; 0 if it has no such series yet. */
  async metric(series: string): Promise<number> {
    const { body } = await request(`${this.cluster.metricsUrls.atelet}/metrics`);
    const line = (await body.text()).split("\n").find((text) => text.startsWith(`${series} `));
    return line === undefined ? 0 : Number(line.slice(series.length + 1));
  }

  /** Books all of the node's room but so much, by an actor that does nothing. */
  async fillUp(name: string, leaveBytes: number): Promise<void> {
    const { ledger } = await this.look();
    // the runtime's own part is booked, too
    await this.template(name, Math.floor((ledger.unbookedBytes - leaveBytes) / MIB) - 32);
    await this.product.actor(name, name);
    await this.ask(name, "/", "GET");
  }
}
