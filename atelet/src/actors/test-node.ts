import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { createLogger } from "@substrate/lib/log.ts";
import pLimit from "p-limit";
import { Registry } from "prom-client";
import { type Cgroups, type LimitsHit } from "../cgroups/cgroups.ts";
import { type ClaimRequest, type DiskClaim, type DiskRoom } from "../disk/contract.ts";
import { type Images } from "../images/images.ts";
import { MemoryLedger } from "../ledger/ledger.ts";
import { createAteletMetrics } from "../metrics.ts";
import { type FileChecks } from "../generations/seal.ts";
import { type ActorNetwork, type SleepingImage, type Slot } from "../network/network.ts";
import { type Parked, ParkedAddresses } from "../network/parked.ts";
import { Outputs } from "../output/outputs.ts";
import { Origins } from "../origins/origins.ts";
import {
  type ProcessIdentity,
  type RestoreOptions,
  type SandboxCapabilities,
  type SandboxRuntime,
  type SandboxSpec,
  type SandboxStatus,
} from "../sandbox/sandbox.ts";
import { Exits, type ExitStatus } from "../supervisor/exits.ts";
import { Copier } from "../store/copier.ts";
import { PageEngine } from "../pages/page-engine.ts";
import { type SnapshotStore } from "../store/snapshots.ts";
import { storeSettings } from "../store/settings.ts";
import { Stores } from "../store/stores.ts";
import { Tombstones } from "../tombstones/tombstones.ts";
import { type AsyncPageCache } from "../writeback/cache-worker.ts";
import { WriteBack } from "../writeback/writeback.ts";
import { NodeActors } from "./node-actors.ts";
import { type Assignment } from "./terms.ts";
import { FakeMounts } from "../volumes/fake-mounts.ts";
import { type NodeContext, type Requests } from "./node-context.ts";
import { type Program, type StoredPrefix } from "./record.ts";
import { Releases } from "./releases.ts";
import { type RouteLevel } from "./route-level.ts";
import { Tags } from "./tags.ts";
import { Trials } from "./trial.ts";
import { StartPlaces } from "./start-places.ts";
import { Urgency } from "./urgency.ts";
import { ImageReads } from "../writeback/image-reads.ts";
import { SlotFolders } from "../warm/slot-folder.ts";
import { WarmSlots } from "../warm/warm-slots.ts";

/** Its threads take half a second to start: all nodes of a test file share them. Idle, they hold nobody up. */
const pages = new PageEngine();

/**
 * A runtime whose programs are numbers in memory: the state machine's races and crash points, which the real one can't
 * be made to show on demand. What real sandboxes do is tested in e2e/.
 */
class FakeRuntime implements SandboxRuntime {
  readonly exits = new Exits();
  readonly #ended = new Map<string, ProcessIdentity>();
  readonly sandboxes = new Map<string, { status: SandboxStatus["status"]; memory: number; spec: SandboxSpec }>();
  /** Sandboxes that wait for a restore. */
  readonly created = new Map<string, SandboxSpec>();
  starts = 0;
  /** Of each restore that went well, whether connections were to be kept. */
  readonly keptConnections: boolean[] = [];
  /** Whether programs end when they are told to. */
  endsOnSignal = true;
  failNext: Record<string, Error | undefined> = {};
  /** Held open until it resolves: lets a test look at the middle of an operation. */
  hold: Partial<Record<"checkpoint" | "restore" | "load", Promise<void>>> = {};

  capabilities(): Promise<SandboxCapabilities> {
    return Promise.resolve({ backgroundRestore: true, warmRestore: true, runtime: "fake-1" });
  }
  create(spec: SandboxSpec): Promise<void> {
    this.#maybeFail("create");
    this.created.set(spec.id, spec);
    return Promise.resolve();
  }
  run(spec: SandboxSpec): Promise<void> {
    this.#maybeFail("run");
    this.starts += 1;
    this.sandboxes.set(spec.id, { status: "running", memory: 0, spec });
    return Promise.resolve();
  }
  pause(id: string): Promise<void> {
    this.#get(id).status = "paused";
    return Promise.resolve();
  }
  resume(id: string): Promise<void> {
    this.#get(id).status = "running";
    return Promise.resolve();
  }
  async checkpoint(id: string, imageDir: string): Promise<number> {
    const { memory } = this.#get(id);
    await writeFile(join(imageDir, "pages.img"), String(memory));
    await this.hold.checkpoint;
    this.#maybeFail("checkpoint");
    return 1;
  }
  async saveRootfs(id: string, file: string): Promise<void> {
    this.#maybeFail("saveRootfs");
    await writeFile(file, `rootfs of ${this.#get(id).memory}`);
  }
  signal(id: string): Promise<void> {
    if (this.endsOnSignal) this.sandboxes.delete(id);
    return Promise.resolve();
  }
  async restore(spec: SandboxSpec, options: RestoreOptions): Promise<void> {
    await this.hold.restore;
    const wasCreated = this.created.delete(spec.id);
    this.#maybeFail("restore");
    if (options.created === true && !wasCreated) throw new SubstrateError("RESTORE_FAILED", `no sandbox ${spec.id}`);
    const memory = Number(await readFile(join(options.imageDir, "pages.img"), "utf8"));
    this.starts += 1;
    this.keptConnections.push(options.keepConnections);
    this.sandboxes.set(spec.id, { status: "running", memory, spec });
  }
  exec(): Promise<never> {
    return Promise.reject(new SubstrateError("INVALID", "this runtime runs nothing beside its programs"));
  }
  async waitRestored(): Promise<void> {
    await this.hold.load;
    const failure = this.failNext.load;
    this.failNext.load = undefined;
    if (failure !== undefined) throw failure;
  }
  delete(id: string): Promise<void> {
    this.sandboxes.delete(id);
    this.created.delete(id);
    this.#ended.delete(id);
    return Promise.resolve();
  }
  list(): Promise<SandboxStatus[]> {
    const waiting = [...this.created.keys()].map((id) => ({ id, status: "created" as const, pid: 1 }));
    return Promise.resolve([...waiting, ...[...this.sandboxes].map(([id, { status }]) => ({ id, status, pid: 1 }))]);
  }
  process(id: string): Promise<ProcessIdentity | undefined> {
    return Promise.resolve(this.#ended.get(id));
  }
  alive(id: string): Promise<boolean> {
    return Promise.resolve(this.sandboxes.has(id) || this.created.has(id));
  }

  /** The program of the one sandbox there is ends by itself. */
  end(status: ExitStatus): void {
    this.only();
    for (const id of this.sandboxes.keys()) {
      const identity = { pid: 1, startTicks: this.starts };
      this.exits.add({ ...identity, status });
      this.#ended.set(id, identity);
    }
    this.sandboxes.clear();
  }

  /** The one sandbox there is. */
  only(): { status: SandboxStatus["status"]; memory: number; spec: SandboxSpec } {
    const [sandbox, ...others] = this.sandboxes.values();
    if (sandbox === undefined || others.length > 0) throw new Error(`${this.sandboxes.size} sandboxes`);
    return sandbox;
  }

  #get(id: string): { status: SandboxStatus["status"]; memory: number } {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) throw new SubstrateError("PROGRAM_EXITED", `no sandbox ${id}`);
    return sandbox;
  }
  #maybeFail(what: string): void {
    const failure = this.failNext[what];
    this.failNext[what] = undefined;
    if (failure !== undefined) throw failure;
  }
}

class FakeNetwork implements ActorNetwork {
  readonly used = new Set<number>();
  readonly blocked = new Set<number>();
  /** In the kernel, as all of this is: it outlives an atelet. */
  readonly parked = new ParkedAddresses(10);
  /** Actors whose connections were given up. */
  readonly givenUp: Parked[] = [];
  #next = 1;
  #port = 20_000;
  start(keep: { slots: readonly number[]; parked: readonly string[] }): Promise<void> {
    for (const index of this.used) if (!keep.slots.includes(index)) this.used.delete(index);
    this.givenUp.push(...this.parked.keepOnly(new Set(keep.parked)));
    return Promise.resolve();
  }
  acquire(): Promise<Slot> {
    const slot = this.#slot(this.#next++);
    this.used.add(slot.index);
    return Promise.resolve(slot);
  }
  adopt(index: number): Slot {
    if (!this.used.has(index)) throw new SubstrateError("INTERNAL", `network slot ${index} is not in the kernel`);
    return this.#slot(index);
  }
  #slot(index: number): Slot {
    return { index, netnsPath: `/netns/${index}`, nodeAddress: "127.0.0.1" };
  }
  get parkedCount(): number {
    return this.parked.count;
  }
  park(slot: Slot, image: SleepingImage): Promise<void> {
    this.givenUp.push(...this.parked.add({ ...image, nodeAddress: slot.nodeAddress }));
    return Promise.resolve();
  }
  unpark(slot: Slot, image: SleepingImage): Promise<Slot | undefined> {
    const taken = this.parked.takeFor(image);
    return Promise.resolve(taken && { ...slot, nodeAddress: taken.nodeAddress });
  }
  giveUp(actor: string): Promise<void> {
    const given = this.parked.take(actor);
    if (given !== undefined) this.givenUp.push(given);
    return Promise.resolve();
  }
  release(slot: Slot): Promise<void> {
    this.used.delete(slot.index);
    return Promise.resolve();
  }
  putAddress(): Promise<void> {
    return Promise.resolve();
  }
  publish(_slot: Slot, ports: readonly number[]): Promise<{ containerPort: number; outerPort: number }[]> {
    return Promise.resolve(ports.map((containerPort) => ({ containerPort, outerPort: this.#port++ })));
  }
  published(): Promise<{ containerPort: number; outerPort: number }[]> {
    return Promise.resolve([{ containerPort: 8080, outerPort: this.#port++ }]);
  }
  unpublish(): Promise<void> {
    return Promise.resolve();
  }
  block(slot: Slot): Promise<void> {
    this.blocked.add(slot.index);
    return Promise.resolve();
  }
  open(slot: Slot): Promise<void> {
    this.blocked.delete(slot.index);
    return Promise.resolve();
  }
  routersBefore(): readonly string[] {
    return [];
  }
  setRouters(): Promise<void> {
    return Promise.resolve();
  }
  close(): Promise<void> {
    return Promise.resolve();
  }
  destroy(): Promise<void> {
    return Promise.resolve();
  }
}

class FakeDisk implements DiskRoom {
  /** What the next claims hear that are not urgent. */
  full: SubstrateError | undefined;
  readonly claimed: string[] = [];
  claim({ what, urgent = false }: ClaimRequest): Promise<DiskClaim> {
    if (this.full !== undefined && !urgent) return Promise.reject(this.full);
    this.claimed.push(what);
    return Promise.resolve({ end: () => undefined });
  }
}

class FakeRouters implements Requests {
  readonly routes = new Map<string, RouteLevel>();
  open = 0;
  publish(route: RouteLevel): void {
    this.routes.set(route.actor.uid, route);
  }
  gone(uid: string): void {
    this.routes.delete(uid);
  }
  drain(): Promise<number> {
    return Promise.resolve(this.open);
  }
  cut(): Promise<void> {
    return Promise.resolve();
  }
}

const memory = {
  usageBytes: 0,
  limitBytes: 2 ** 30,
  limited: true,
  shmemBytes: 0,
  cleanCacheBytes: 0,
  dirtyBytes: 0,
  writebackBytes: 0,
};

function fakeCgroups(moves: string[], limits: LimitsHit): Cgroups {
  return {
    create: (id) => Promise.resolve(`/actors/${id}`),
    path: (id) => `/actors/${id}`,
    moveToSnapshots: (id, { lent }) => {
      moves.push(`out ${id}`);
      return Promise.resolve({ direct: !lent });
    },
    snapshots: () => Promise.resolve({ dirtyBytes: 0, writebackBytes: 0 }),
    moveBack: (id) => Promise.resolve(void moves.push(`back ${id}`)),
    actor: () => Promise.resolve(memory),
    pod: () => Promise.resolve(memory),
    remove: () => Promise.resolve(),
    list: () => Promise.resolve([]),
    destroy: () => Promise.resolve(),
    limitCpu: () => Promise.resolve(),
    limitsHit: () => Promise.resolve({ ...limits }),
    cpuNs: () => Promise.resolve(0n),
  };
}

const image = {
  digest: "sha256:1",
  entrypoint: ["/program"],
  cmd: [],
  env: [],
  workingDir: "/",
  uid: 0,
  gid: 0,
};
function fakeImages(rootfsDir: string): Images {
  const unpacked = { ...image, rootfsDir };
  return { ensure: () => Promise.resolve(unpacked), local: () => Promise.resolve(unpacked) };
}
const cleanCache: AsyncPageCache = {
  inspect: () => Promise.resolve({ cachedPages: 0, dirtyPages: 0, writebackPages: 0 }),
  writeOut: () => Promise.resolve(true),
  evict: () => Promise.resolve("evicted"),
};

/** One node whose parts are fakes, but whose folder, ledger, records and store are real. */
export class TestNode {
  readonly dir: string;
  readonly runtime = new FakeRuntime();
  readonly network = new FakeNetwork();
  readonly routers = new FakeRouters();
  readonly moves: string[] = [];
  readonly limits: LimitsHit = { memory: false, processes: undefined, mostProcesses: 0 };
  /** Every line that the parts wrote. */
  readonly logged: unknown[] = [];
  readonly storeDir: string;
  session = "s1";
  readonly snapshotSlots = pLimit(2);
  readonly mounts = new FakeMounts();
  readonly #jobs = pLimit(2);
  readonly #copier = new Copier();
  readonly #checks: FileChecks = {
    digest: (path) => this.#copier.digest(path),
    verify: (image) => pages.verify(image),
  };
  ledger = new MemoryLedger({ limitBytes: 2 ** 30, reserveBytes: 0 });
  actors!: NodeActors;
  trials!: Trials;
  tags!: Tags;
  /** How many sandboxes may wait; for a node that is started later. */
  warmSlots = 0;
  readonly warmOutcomes: string[] = [];
  warm!: WarmSlots;
  tombstones!: Tombstones;
  origins!: Origins;
  readonly disk = new FakeDisk();
  #ending = new AbortController();
  readonly stopping = new AbortController();
  context!: NodeContext;
  readonly #real: Partial<NodeContext>;

  /** @param real parts that are not to be fakes. */
  constructor(dir: string, storeDir: string, real: Partial<NodeContext> = {}) {
    this.dir = dir;
    this.storeDir = storeDir;
    this.#real = real;
  }

  static async create(storeDir?: string): Promise<TestNode> {
    const dir = await mkdtemp(join(tmpdir(), "atelet-"));
    const node = new TestNode(dir, storeDir ?? join(dir, "store"));
    await node.start();
    return node;
  }

  /** A new atelet on the same folder, as after a kill -9: what was in memory is gone, sandboxes are not. */
  async restart(real: Partial<NodeContext> = {}): Promise<void> {
    this.end();
    Object.assign(this.#real, real);
    this.ledger = new MemoryLedger({ limitBytes: 2 ** 30, reserveBytes: 0 });
    await this.start();
  }

  async start(): Promise<void> {
    this.#ending = new AbortController();
    const log = createLogger("test", "debug");
    log.clear();
    log.pipe(
      new Writable({
        objectMode: true,
        write: (line: unknown, _encoding, done) => {
          this.logged.push(line);
          done();
        },
      }),
    );
    const actorsDir = join(this.dir, "actors");
    await mkdir(actorsDir, { recursive: true });
    await mkdir(join(this.dir, "rootfs"), { recursive: true });
    const stores = new Stores(new Map([["default", storeSettings("default", `file://${this.storeDir}`)]]), pages);
    const { signal: ended } = this.#ending;
    // an atelet that has ended stores nothing, though this process goes on
    const store = (name: string): SnapshotStore => {
      ended.throwIfAborted();
      return stores.get(name);
    };
    const metrics = createAteletMetrics(new Registry(), { running: () => 0, pending: () => 0, parked: () => 0 });
    this.tombstones = new Tombstones({
      dir: join(this.dir, "tombstones"),
      store,
      waiting: (count) => {
        metrics.tombstones.set(count);
      },
      log,
      signal: this.#ending.signal,
    });
    await this.tombstones.load();
    this.origins = new Origins({
      dir: join(this.dir, "origins"),
      runtimeBuild: "fake-1",
      store,
      inUse: () => this.actors.originsInUse(),
      checks: this.#checks,
      count: () => undefined,
      jobs: this.#jobs,
      claim: (bytes, what) => this.disk.claim({ bytes, what, withinMs: 0, kind: "snapshot" }),
      bytesBelow: () => Promise.resolve(1),
      log,
      signal: this.#ending.signal,
    });
    await this.origins.load();
    const urgency = new Urgency();
    const warmFolders = new SlotFolders(join(this.dir, "warm"), this.mounts);
    const cgroups = fakeCgroups(this.moves, this.limits);
    this.warm = new WarmSlots({
      runtime: this.runtime,
      network: this.network,
      cgroups,
      ledger: this.ledger,
      folders: warmFolders,
      most: this.warmSlots,
      quiet: () => urgency.quiet(0, this.#ending.signal),
      outcome: (outcome) => this.warmOutcomes.push(outcome),
      log,
      signal: this.#ending.signal,
    });
    this.context = {
      stateDir: this.dir,
      actorsDir,
      runtime: this.runtime,
      runtimeBuild: "fake-1",
      network: this.network,
      exits: this.runtime.exits,
      cgroups,
      images: fakeImages(join(this.dir, "rootfs")),
      store,
      storeNames: () => stores.names(),
      pages,
      fileChecks: this.#checks,
      digestSlots: this.#jobs,
      tombstones: this.tombstones,
      origins: this.origins,
      ledger: this.ledger,
      pageCache: cleanCache,
      writeBack: new WriteBack({
        cache: cleanCache,
        tight: () => Promise.resolve(false),
        flushed: () => undefined,
        evicted: () => undefined,
        gaveUp: () => undefined,
        log,
        signal: this.#ending.signal,
      }),
      outputs: new Outputs({ sink: undefined, passed: () => undefined, dropped: () => undefined, log }),
      volumes: { mounts: this.mounts, jobs: this.#jobs, originsDir: join(this.dir, "origins") },
      disk: this.disk,
      warm: this.warm,
      imageReads: new ImageReads(cleanCache),
      startPlaces: new StartPlaces(2),
      warmFolders,
      urgency,
      snapshotSlots: this.snapshotSlots,
      routers: this.routers,
      metrics,
      session: () => this.session,
      log,
      stopping: this.stopping.signal,
      signal: this.#ending.signal,
      ...this.#real,
    };
    const releases = new Releases(join(this.dir, "released"));
    await releases.load(Date.now());
    this.actors = new NodeActors(this.context, releases);
    this.trials = new Trials(this.context);
    this.tags = new Tags(this.context, this.actors);
    await this.actors.start();
  }

  /** Nothing of it goes on; its folder stays. */
  end(): void {
    this.#ending.abort();
  }

  async stop(): Promise<void> {
    this.end();
    await this.#copier.close();
    await rm(this.dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 20 });
  }

  /** What the image of a Snapshot in the store has in its pages. */
  async storedPages(uid: string): Promise<string> {
    const dir = await mkdtemp(join(this.dir, "fetched-"));
    const pages = { table: `${dir}.table`, index: `${dir}.index`, reuse: [] };
    await this.context.store("default").download(snapshotPrefix(uid).prefix, "1-1/manifest.json", { dir, pages });
    return readFile(join(dir, "pages.img"), "utf8");
  }

  async storeKeys(): Promise<string[]> {
    const all = await readdir(this.storeDir, { recursive: true, withFileTypes: true });
    return all
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => join(parentPath, name).slice(this.storeDir.length + 1));
  }
}

export const key = { uid: "00000000-0000-4000-8000-000000000001", namespace: "default", name: "a", namespaceUid: "n" };

export function program(changes: Partial<Program> = {}): Program {
  return {
    templateUid: "t",
    templateName: "t",
    revision: "r1",
    containerName: "c",
    image: "i",
    command: [],
    args: [],
    ports: [],
    memoryBytes: 64 * 2 ** 20,
    cpuMillis: 1000,
    store: "default",
    uploadDelayMs: 60_000,
    uploadWithinMs: 120_000,
    drainTimeoutMs: 100,
    wakeTimeoutMs: 200,
    volumeMounts: [],
    history: 1,
    onSuspend: "Memory",
    ...changes,
  };
}

/** A Snapshot object's place in the store. */
export function snapshotPrefix(uid: string): StoredPrefix {
  return { prefix: { clusterUid, namespaceUid: "n", actorUid: uid }, name: `default/${uid}`, store: "default" };
}

export const clusterUid = "c1";

/** What an operator asks for that wants nothing special. */
export function assignment(grant: Assignment["grant"], changes: Partial<Assignment> = {}): Assignment {
  return { actor: key, grant, program: program(), held: false, clusterUid, upgradePending: false, ...changes };
}
