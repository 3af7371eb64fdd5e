import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { copyFile, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Actor } from "@substrate/atelet/actors/actor.ts";
import { type NodeActors } from "@substrate/atelet/actors/node-actors.ts";
import { type Program } from "@substrate/atelet/actors/record.ts";
import { assignment, program as anyProgram, TestNode } from "@substrate/atelet/actors/test-node.ts";
import { detectCgroups } from "@substrate/atelet/cgroups/detect.ts";
import { type ActorNetwork, type Slot } from "@substrate/atelet/network/network.ts";
import { GvisorRuntime } from "@substrate/atelet/sandbox/gvisor/runtime.ts";
import { OverlayMounts, unmountBelow } from "@substrate/atelet/volumes/mounts.ts";
import { buildCounter } from "@substrate/examples/programs.ts";
import { createLogger } from "@substrate/lib/log.ts";
import pLimit from "p-limit";
import { buildKeeper } from "../programs/keeper.ts";
import { removeGroup } from "../support/cgroups.ts";
import { tools } from "../support/tools.ts";

const run = promisify(execFile);

/** Network namespaces of the machine's own kind: who may talk to whom is tested elsewhere. */
class PlainNetwork implements ActorNetwork {
  readonly #tag = randomBytes(2).toString("hex");
  readonly #made = new Set<number>();
  #next = 1;

  start(): Promise<void> {
    return Promise.resolve();
  }
  async acquire(): Promise<Slot> {
    const slot = this.adopt(this.#next++);
    const name = this.#name(slot.index);
    await run("ip", ["netns", "add", name]);
    this.#made.add(slot.index);
    await run("ip", ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name]);
    await run("ip", ["addr", "add", `${this.#address(slot.index, 1)}/30`, "dev", name]);
    await run("ip", ["link", "set", name, "up"]);
    await run("ip", ["-n", name, "link", "set", "eth0", "up"]);
    return slot;
  }
  adopt(index: number): Slot {
    return { index, netnsPath: `/run/netns/${this.#name(index)}`, nodeAddress: this.#address(index, 2) };
  }
  async release({ index }: Slot): Promise<void> {
    if (!this.#made.delete(index)) return;
    await run("ip", ["netns", "del", this.#name(index)]);
  }
  async putAddress({ index }: Slot): Promise<void> {
    const name = this.#name(index);
    await run("ip", ["-n", name, "addr", "replace", `${this.#address(index, 2)}/30`, "dev", "eth0"]);
  }
  publish(_slot: Slot, ports: readonly number[]): Promise<{ containerPort: number; outerPort: number }[]> {
    return Promise.resolve(ports.map((containerPort) => ({ containerPort, outerPort: containerPort })));
  }
  published(slot: Slot): Promise<{ containerPort: number; outerPort: number }[]> {
    return this.publish(slot, [8080]);
  }
  routersBefore(): readonly string[] {
    return [];
  }
  unpublish = (): Promise<void> => Promise.resolve();
  block = (): Promise<void> => Promise.resolve();
  open = (): Promise<void> => Promise.resolve();
  readonly parkedCount = 0;
  park = (): Promise<void> => Promise.resolve();
  unpark = (): Promise<undefined> => Promise.resolve(undefined);
  giveUp = (): Promise<void> => Promise.resolve();
  setRouters = (): Promise<void> => Promise.resolve();
  close = (): Promise<void> => Promise.resolve();
  async destroy(): Promise<void> {
    for (const index of [...this.#made]) await this.release(this.adopt(index));
  }

  #name(index: number): string {
    return `vol${this.#tag}${index}`;
  }
  #address(index: number, host: number): string {
    // 198.18.0.0/15 is for benchmarks: no route of the machine is hidden by it
    return `198.19.${Number.parseInt(this.#tag.slice(0, 2), 16)}.${index * 4 + host}`;
  }
}

export interface Counts {
  memory: number;
  log: number;
  mapped: number;
  inFile: number;
  rows: number;
  turns: number;
  root: number;
  ended: number;
  pid: number;
  unlinked?: number;
}

export const key = {
  uid: "00000000-0000-4000-8000-00000000000a",
  namespace: "default",
  name: "keeper",
  namespaceUid: "n",
};

/** One node's actors with real sandboxes, overlays and a store, and nothing of a cluster. */
export class VolumesRig {
  readonly dir: string;
  readonly mounts = new OverlayMounts();
  readonly network = new PlainNetwork();
  #node: TestNode | undefined;
  #runtime!: GvisorRuntime;
  #cgroups!: Awaited<ReturnType<typeof detectCgroups>>;
  readonly #cgroupParent = `/substrate-test-v${randomBytes(2).toString("hex")}`;
  #epoch = 0;

  private constructor(dir: string) {
    this.dir = dir;
  }

  static async open(): Promise<VolumesRig> {
    const rig = new VolumesRig(await mkdtemp(join(tmpdir(), "vol-")));
    await buildKeeper(join(rig.dir, "keeper"));
    await buildCounter(join(rig.dir, "counter"));
    const rootfs = join(rig.dir, "rootfs");
    await mkdir(join(rootfs, "run", "ate"), { recursive: true });
    for (const name of ["proc", "dev", "sys", "tmp"]) await mkdir(join(rootfs, name));
    for (const name of ["keeper", "counter"]) {
      await copyFile(join(rig.dir, name, "bin", name), join(rootfs, name));
    }
    rig.#cgroups = await detectCgroups(rig.#cgroupParent);
    await rig.start("node");
    return rig;
  }

  /** An atelet on a state folder of that name; what an earlier one left there is found again, as after a kill -9. */
  async start(name: string): Promise<void> {
    const stateDir = join(this.dir, name);
    this.#runtime = new GvisorRuntime({
      runscPath: tools.runsc,
      rootDir: join(this.dir, "rt"),
      log: createLogger("volumes-test", "error"),
    });
    await this.#runtime.start();
    if (this.#node?.dir === stateDir) {
      await this.#node.restart({ runtime: this.#runtime });
      return;
    }
    const image = {
      digest: "sha256:1",
      rootfsDir: join(this.dir, "rootfs"),
      entrypoint: ["/keeper"],
      cmd: [],
      env: [],
      workingDir: "/",
      uid: 0,
      gid: 0,
    };
    this.#node?.end();
    this.#node = new TestNode(stateDir, join(this.dir, "store"), {
      runtime: this.#runtime,
      network: this.network,
      cgroups: this.#cgroups,
      images: { ensure: () => Promise.resolve(image), local: () => Promise.resolve(image) },
      volumes: { mounts: this.mounts, jobs: pLimit(2), originsDir: join(stateDir, "origins") },
    });
    await this.#node.start();
  }

  get actors(): NodeActors {
    return this.node.actors;
  }

  get node(): TestNode {
    if (this.#node === undefined) throw new Error("no atelet was started");
    return this.#node;
  }

  /** Grants the next epoch. */
  async assign(changes: Partial<Program> = {}): Promise<Actor> {
    this.#epoch += 1;
    const grant = { epoch: this.#epoch, session: this.node.session };
    await this.actors.assign(assignment(grant, { actor: key, program: program(changes) }));
    return this.actors.get(key.uid);
  }

  get epoch(): number {
    return this.#epoch;
  }

  async suspend(actor: Actor, changes: Partial<Parameters<Actor["suspend"]>[0]> = {}): Promise<void> {
    await actor.suspend({
      operationId: "op",
      mode: "ASYNC",
      force: false,
      targetGeneration: (actor.generations.newest()?.generation ?? 0) + 1,
      ...changes,
    });
  }

  async ask(actor: Actor, method: "GET" | "POST", path: string): Promise<Counts> {
    const slot = this.network.adopt(actor.slotIndex ?? 0);
    const response = await fetch(`http://${slot.nodeAddress}:8080${path}`, {
      method,
      signal: AbortSignal.timeout(10_000),
    });
    return (await response.json()) as Counts;
  }

  /** kill -9 of the sandbox. */
  async kill(actor: Actor): Promise<void> {
    process.kill((await this.#runtime.pids(actor.sandboxId)).sandbox, "SIGKILL");
  }

  /** Own layers on the disk. */
  async layers(state: string): Promise<string[]> {
    return (await readdir(join(this.dir, state, "actors", key.uid, "volumes", "data", "layers"))).sort();
  }

  async mounted(): Promise<string[]> {
    const below = await this.mounts.below(this.dir);
    return below.map(({ target }) => target).filter((target) => target.includes("/volumes/"));
  }

  async close(): Promise<void> {
    this.#node?.end();
    for (const { id } of await this.#runtime.list()) await this.#runtime.delete(id);
    await unmountBelow(this.mounts, this.dir);
    await this.network.destroy();
    await this.#cgroups.destroy();
    await removeGroup(this.#cgroupParent);
    await this.#runtime.destroy();
    await this.mounts.close();
    // the store may still be removing what was deleted
    await rm(this.dir, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  }
}

export function program(changes: Partial<Program> = {}): Program {
  return anyProgram({
    ports: [{ name: "http", containerPort: 8080 }],
    memoryBytes: 128 * 2 ** 20,
    uploadDelayMs: 600_000,
    uploadWithinMs: 600_000,
    drainTimeoutMs: 2000,
    wakeTimeoutMs: 20_000,
    volumeMounts: [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }],
    ...changes,
  });
}
