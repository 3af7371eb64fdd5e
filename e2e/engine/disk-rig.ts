import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Template } from "@substrate/crds/index.ts";
import { events } from "@substrate/lib/kube/types.ts";
import { type LocalCluster, startLocalCluster } from "@substrate/local/cluster.ts";
import { request } from "undici";
import { Product } from "../bench/product.ts";
import { buildGlutton } from "../programs/glutton.ts";
import { LoopDisk } from "../support/loop-disk.ts";
import { eventually } from "../support/poll.ts";
import { tools } from "../support/tools.ts";
import { freeDisk, leaveFree } from "./faults/fill.ts";

const MIB = 2 ** 20;
const DISK_BYTES = 1536 * MIB;
/** What an actor of Template glutton holds of random memory. */
export const HELD_MIB = 64;
/** One of Template big; two of them are more than snapshots may take, which nothing else here is. */
export const BIG_MIB = 300;
const QUOTA_BYTES = 600 * MIB;
/** Of the volume that each of them has. */
export const VOLUME_MIB = 64;

/** A local cluster whose node has a small disk of its own, on which writes can be made to fail. */
export class DiskRig {
  readonly cluster: LocalCluster;
  readonly product: Product;
  readonly #disk: LoopDisk;
  readonly #dir: string;

  private constructor(dir: string, disk: LoopDisk, cluster: LocalCluster, product: Product) {
    this.#dir = dir;
    this.#disk = disk;
    this.cluster = cluster;
    this.product = product;
  }

  static async start(): Promise<DiskRig> {
    const dir = mkdtempSync(join(tmpdir(), "sub-"));
    const disk = LoopDisk.mount(join(dir, "node"), DISK_BYTES);
    try {
      const { reference } = await buildGlutton(join(dir, "glutton"));
      const hook = pathToFileURL(join(import.meta.dirname, "faults/hook.ts"));
      hook.searchParams.set("control", join(dir, "fault"));
      const environment = { NODE_OPTIONS: `--import=${hook.href}` };
      const cluster = await startLocalCluster({
        stateDir: dir,
        tools,
        fsync: false,
        say: () => undefined,
        environment,
        ateletFlags: ["--snapshot-quota-bytes", String(QUOTA_BYTES)],
      });
      try {
        const rig = new DiskRig(dir, disk, cluster, await Product.create(cluster));
        await rig.product.template(template("glutton", reference, HELD_MIB));
        await rig.product.template(template("big", reference, BIG_MIB));
        return rig;
      } catch (error) {
        await cluster.stop();
        throw error;
      }
    } catch (error) {
      await disk.remove();
      rmSync(dir, { recursive: true, force: true });
      throw error;
    }
  }

  async stop(): Promise<void> {
    this.heal();
    await this.product.close();
    await this.cluster.stop();
    await this.#disk.remove();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  /** An actor that holds its memory. @returns the digest of it. */
  async actor(name: string, templateName: "glutton" | "big" = "glutton"): Promise<string> {
    await this.product.actor(name, templateName);
    await this.ask(name, `/hold?mib=${templateName === "big" ? BIG_MIB : HELD_MIB}&kind=random`, "POST");
    await this.replaceFile(name);
    return this.digest(name);
  }

  /** Writes a file in its volume and removes the one before it, which must be there. */
  async replaceFile(name: string): Promise<void> {
    await this.ask(name, `/disk?path=/data&mib=1&files=1&kind=random`, "POST");
  }

  digest(name: string): Promise<string> {
    return this.ask(name, "/digest", "GET");
  }

  async ask(name: string, path: string, method: "GET" | "POST"): Promise<string> {
    const { statusCode, body } = await request(this.cluster.routerUrl + path, {
      method,
      headers: { "substrate-actor": `default/${name}` },
      headersTimeout: 60_000,
    });
    const text = await body.text();
    if (statusCode !== 200) throw new Error(`${method} ${path} of ${name} answered ${statusCode}: ${text}`);
    return text;
  }

  /** From now on what writes to such a path fails with this code; FILL: fills the disk before. */
  fail(code: "ENOSPC" | "EIO" | "EROFS" | "FILL", path: string): void {
    writeFileSync(join(this.#dir, "fault"), `${code} ${path}\n`);
  }

  /** So much more than the floor is free. */
  async leave(mibOverFloor: number): Promise<void> {
    freeDisk(this.#disk.folder);
    const floor = await this.metric('substrate_disk_bytes{kind="floor"}');
    leaveFree(this.#disk.folder, floor + mibOverFloor * MIB);
  }

  /** The disk is as it was. */
  heal(): void {
    rmSync(join(this.#dir, "fault"), { force: true });
    freeDisk(this.#disk.folder);
  }

  /** A sample of the atelet's metrics; 0 if it has no such series yet. */
  async metric(series: string): Promise<number> {
    const { body } = await request(`${this.cluster.metricsUrls.atelet}/metrics`);
    const line = (await body.text()).split("\n").find((text) => text.startsWith(`${series} `));
    return line === undefined ? 0 : Number(line.slice(series.length + 1));
  }

  /** Messages of the Events of that reason. */
  async events(reason: string): Promise<string[]> {
    const { items } = await this.cluster.client.list(events);
    return items.filter((event) => event.reason === reason).map(({ message }) => message);
  }

  /** What the node says of its disk. */
  async look(): Promise<{ local: Record<string, number>; heldUnlinkedBytes: number; tight?: string }> {
    const { body } = await request(`${this.cluster.metricsUrls.atelet}/debug/disk`);
    return (await body.json()) as { local: Record<string, number>; heldUnlinkedBytes: number; tight?: string };
  }

  /** R12, R28: no process holds what was deleted, 30 s later at the latest. */
  async nothingHeld(): Promise<void> {
    await eventually(
      async () => {
        const { heldUnlinkedBytes } = await this.look();
        if (heldUnlinkedBytes > 0) throw new Error(`${heldUnlinkedBytes} bytes of deleted files are held`);
      },
      { deadlineMs: 30_000, everyMs: 500 },
    );
  }
}

function template(name: string, image: string, heldMib: number): Template {
  return {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Template",
    metadata: { name, namespace: "default" },
    spec: {
      containers: [
        {
          name: "glutton",
          image,
          ports: [{ name: "http", containerPort: 8080 }],
          readyz: { httpGet: { path: "/readyz", port: 8080 } },
          volumeMounts: [{ name: "data", mountPath: "/data" }],
          resources: { limits: { cpu: "2", memory: `${heldMib + 100}Mi` } },
        },
      ],
      volumes: [{ name: "data", durableDir: { sizeLimit: `${VOLUME_MIB}Mi` } }],
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
      drainTimeout: "5s",
      wakeTimeout: "30s",
    },
  };
}
