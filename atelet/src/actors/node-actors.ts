import { setTimeout as delay } from "node:timers/promises";
import pLimit from "p-limit";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { GenerationFolder } from "../generations/folder.ts";
import { unmountBelow } from "../volumes/mounts.ts";
import { noVolumes } from "../volumes/stack.ts";
import { Actor } from "./actor.ts";
import { type NodeContext } from "./node-context.ts";
import { inheritUnwritten } from "./unwritten.ts";
import { type Assignment } from "./terms.ts";
import { ActorFiles, type ActorKey, type ActorRecord, actorUids } from "./record.ts";
import { type Releases } from "./releases.ts";

/** How often it is looked whether sandboxes still live: a crash is seen within this time. */
const ALIVE_EVERY_MS = 500;
/** More at once only make each other slower. */
const UPLOADS_AT_SHUTDOWN = 4;

export type ActorListener = (change: { actor: Actor } | { gone: { uid: string; epoch: number } }) => void;

/** All actors of this node: who may run here (design.md §7), and what becomes of everything after a restart. */
export class NodeActors {
  readonly #node: NodeContext;
  readonly #releases: Releases;
  readonly #actors = new Map<string, Actor>();
  readonly #listeners = new Set<ActorListener>();
  /** Assign, release and delete of one actor never overlap. */
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(node: NodeContext, releases: Releases) {
    this.#node = node;
    this.#releases = releases;
  }

  /** Brings back what an earlier atelet left: adopts what may go on, removes what belongs to nobody. */
  async start(): Promise<void> {
    const { actorsDir, log, network, runtime, cgroups } = this.#node;
    for (const uid of await actorUids(actorsDir)) {
      const files = new ActorFiles(actorsDir, uid);
      const record = await this.#loadOrSetAside(uid, files);
      if (record !== undefined && this.#releases.epoch(uid) < record.grant.epoch) {
        this.#add(this.#make(record, files));
        continue;
      }
      // Nothing is removed through a mount.
      await unmountBelow(this.#node.volumes.mounts, files.dir);
      // Generations without a record wait for the next grant, which takes them over; not those of a release cut off.
      if (record !== undefined || !(await this.#hasUnreleased(uid, files))) await files.remove();
    }
    const actors = [...this.#actors.values()];
    const sandboxes = new Map((await runtime.list()).map((sandbox) => [sandbox.id, sandbox.status]));
    const kept = new Set(actors.filter((actor) => actor.slotIndex !== undefined).map((actor) => actor.sandboxId));
    for (const id of sandboxes.keys()) {
      if (kept.has(id)) continue;
      log.warn("removing a sandbox that no actor here owns", { sandbox: id });
      await runtime.delete(id);
    }
    for (const id of await cgroups.list()) if (!kept.has(id)) await cgroups.remove(id);
    await this.#node.warmFolders.start(kept);
    await network.start({
      slots: actors.flatMap(({ slotIndex }) => slotIndex ?? []),
      // A sandbox that is still there, or was when the last atelet wrote it down, was not put to sleep to its end.
      parked: actors.flatMap(({ slotIndex, record }) => (slotIndex === undefined ? record.actor.uid : [])),
    });
    for (const actor of actors) {
      const status = sandboxes.get(actor.sandboxId);
      await actor.adopt(status === "running" || status === "paused" ? status : "gone");
    }
    await inheritUnwritten(this.#node, actors);
    void this.#watch();
    void this.#verify(actors);
  }

  /** One after the other, and idle for as long as it took: wakes need the disk and the cores more. */
  async #verify(actors: readonly Actor[]): Promise<void> {
    const { signal, log } = this.#node;
    for (const actor of actors) {
      const startMs = performance.now();
      try {
        await actor.verifyCopies();
        await delay(performance.now() - startMs, undefined, { signal, ref: false });
      } catch (error) {
        if (signal.aborted) return;
        log.error("a local snapshot could not be verified", { actor: actor.name, error });
      }
    }
  }

  /** One record that cannot be read must not keep all other actors from coming back. */
  async #loadOrSetAside(uid: string, files: ActorFiles): Promise<ActorRecord | undefined> {
    try {
      return await files.load();
    } catch (error) {
      const aside = await files.setRecordAside();
      this.#node.log.error("an actor's record cannot be read; what it goes on from is decided anew by head and files", {
        uid,
        aside,
        error,
      });
      return undefined;
    }
  }

  all(): Actor[] {
    return [...this.#actors.values()];
  }

  /** Throws MOVED with the highest epoch known here. */
  get(uid: string): Actor {
    const actor = this.#actors.get(uid);
    if (actor !== undefined) return actor;
    throw new SubstrateError(
      "MOVED",
      `actor ${uid} is not on this node; epoch ${this.#releases.epoch(uid)} was released`,
    );
  }

  find(uid: string): Actor | undefined {
    return this.#actors.get(uid);
  }

  /** The actor, if the call's epoch is the one recorded here; throws MOVED otherwise. */
  withEpoch(uid: string, epoch: number): Actor {
    const actor = this.get(uid);
    if (actor.record.grant.epoch === epoch) return actor;
    throw new SubstrateError(
      "MOVED",
      `actor ${actor.name} has epoch ${actor.record.grant.epoch} on this node, not ${epoch}`,
    );
  }

  /** Whose volume data lies at the bottom of a stack of an actor here. */
  originsInUse(): Set<string> {
    return new Set(this.all().flatMap((actor) => actor.origins()));
  }

  onChange(listener: ActorListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Records a grant (design.md §7). Idempotent. Throws STALE_SESSION or MOVED. */
  assign(assignment: Assignment): Promise<void> {
    const { actor, grant } = assignment;
    return this.#inTurn(actor.uid, async () => {
      const name = `${actor.namespace}/${actor.name}`;
      if (grant.session !== this.#node.session()) {
        throw new SubstrateError(
          "STALE_SESSION",
          `the grant of actor ${name} names a session that this node has ended`,
        );
      }
      const existing = this.#actors.get(actor.uid);
      const highest = Math.max(this.#releases.epoch(actor.uid), existing?.record.grant.epoch ?? 0);
      const repeated = existing?.record.grant.epoch === grant.epoch && existing.record.grant.session === grant.session;
      if (grant.epoch <= highest && !repeated) {
        throw new SubstrateError(
          "MOVED",
          `epoch ${grant.epoch} of actor ${name} is over here; ${highest} is the highest`,
        );
      }
      if (existing !== undefined) {
        await existing.assign(assignment);
        return;
      }
      const files = new ActorFiles(this.#node.actorsDir, actor.uid);
      await files.create();
      const made = this.#make(newRecord(assignment), files);
      await made.takeOver();
      await made.assign(assignment);
      this.#add(made);
      this.#notify({ actor: made });
    });
  }

  /**
   * design.md §7 Release. Recorded durably before it resolves, also for an epoch never received. Deleting kills the
   * sandbox and records what is to be removed from the stores. Throws NOT_RELEASABLE, MOVED, STORE_UNAVAILABLE.
   */
  release(key: ActorKey, epoch: number, options: { deleting: boolean; clusterUid: string }): Promise<void> {
    return this.#inTurn(key.uid, async () => {
      const actor = this.#actors.get(key.uid);
      if (actor !== undefined && actor.record.grant.epoch > epoch) {
        throw new SubstrateError(
          "MOVED",
          `actor ${actor.name} has epoch ${actor.record.grant.epoch} here, not ${epoch}`,
        );
      }
      if (actor !== undefined) {
        if (options.deleting) await actor.markDeleting();
        else {
          const why = await actor.prepareToLeave();
          if (why !== undefined) {
            throw new SubstrateError("NOT_RELEASABLE", `actor ${actor.name} cannot leave this node: ${why}`, {
              retryAfterMs: 1000,
            });
          }
        }
      }
      if (actor === undefined && !options.deleting) await this.#refuseLost(key);
      try {
        await this.#releases.record(key.uid, epoch, Date.now());
      } catch (error) {
        actor?.stay();
        throw error;
      }
      const left = actor?.leave() ?? this.#removeFiles(key.uid);
      // Its Template, which named the store, may be gone, and older generations may be in another one.
      if (options.deleting) {
        await this.#node.tombstones.add({
          prefix: { clusterUid: options.clusterUid, namespaceUid: key.namespaceUid, actorUid: key.uid },
          title: `actor ${key.namespace}/${key.name}`,
          stores: this.#node.storeNames(),
          after: left.then(({ writes }) => writes),
        });
      }
      await left;
      if (actor !== undefined) {
        this.#actors.delete(key.uid);
        this.#node.routers.gone(key.uid);
      }
      this.#notify({ gone: { uid: key.uid, epoch: this.#releases.epoch(key.uid) } });
    });
  }

  /** The session ended: everything that runs is cut until it is granted anew. */
  async endSession(): Promise<void> {
    await Promise.all(this.all().map((actor) => this.#guard(actor, "cut", () => actor.cut())));
  }

  /**
   * The last resort before the node's processes end: suspends everything and uploads it, those used last first, until all
   * is done or `late` resolves. Says of each actor what could not be saved.
   */
  async saveAll(late: Promise<unknown>): Promise<void> {
    const uploads = pLimit(UPLOADS_AT_SHUTDOWN);
    const byUse = this.all().sort((one, other) => other.record.lastActivityMs - one.record.lastActivityMs);
    const upload = (actor: Actor): Promise<void> =>
      uploads(() => this.#guard(actor, "upload at shutdown", () => actor.uploadAtShutdown()));
    const suspended = byUse
      .filter((actor) => actor.hasSandbox)
      .map(async (actor) => {
        await this.#guard(actor, "suspend at shutdown", () => actor.suspendAtShutdown());
        return { uploaded: upload(actor) };
      });
    // What slept already is older than what comes out of memory now.
    const all = Promise.all(suspended).then(async (running) => {
      await Promise.all([...running.map(({ uploaded }) => uploaded), ...byUse.map(upload)]);
    });
    await Promise.race([all, late]);
    for (const actor of byUse) this.#sayUnsaved(actor);
  }

  #sayUnsaved(actor: Actor): void {
    const { log } = this.#node;
    if (actor.hasSandbox) {
      log.error("not suspended within the grace period: what it has done since its newest generation is lost", {
        actor: actor.name,
        generation: actor.generations.newest()?.generation ?? 0,
      });
    } else if (actor.pendingGeneration !== undefined) {
      log.warn("not uploaded within the grace period: its newest generation is on this node's disk only", {
        actor: actor.name,
        generation: actor.pendingGeneration,
        message: actor.generations.newest()?.storage.message,
      });
    }
  }

  /** Whether there are generations that were made under an epoch which this node has not given up. */
  async #hasUnreleased(uid: string, files: ActorFiles): Promise<boolean> {
    if (!(await files.hasGenerations())) return false;
    const folder = new GenerationFolder(files.generations, this.#node.fileChecks);
    const { records } = await folder.load();
    const released = this.#releases.epoch(uid);
    // of what can't be read any more nobody knows that it was given up
    return [...records, ...folder.aside.all()].some(({ epoch }) => epoch === undefined || epoch > released);
  }

  /** What an actor whose record was lost has here may be all there is of it. */
  async #refuseLost(key: ActorKey): Promise<void> {
    if (!(await this.#hasUnreleased(key.uid, new ActorFiles(this.#node.actorsDir, key.uid)))) return;
    throw new SubstrateError(
      "NOT_RELEASABLE",
      `actor ${key.namespace}/${key.name} cannot leave this node: its record was lost and generations of it are here; resume it`,
      { retryAfterMs: 1000 },
    );
  }

  async #removeFiles(uid: string): Promise<{ writes: Promise<void> }> {
    await new ActorFiles(this.#node.actorsDir, uid).remove();
    return { writes: Promise.resolve() };
  }

  #make(record: ActorRecord, files: ActorFiles): Actor {
    return new Actor(this.#node, record, files, (actor) => {
      if (this.#actors.get(actor.record.actor.uid) === actor) this.#notify({ actor });
    });
  }

  #add(actor: Actor): void {
    const { record, files } = actor;
    this.#actors.set(record.actor.uid, actor);
    this.#node.outputs.add(record.actor.uid, {
      log: files.log,
      logPlaces: files.logPlaces,
      labels: () => {
        const { uid, namespace, name } = record.actor;
        return { actor: name, namespace, template: record.program.templateName, uid };
      },
      mayWrite: () => actor.hasSandbox,
      lifeMark: () => record.operations[0]?.id ?? "",
    });
  }

  #notify(change: Parameters<ActorListener>[0]): void {
    for (const listener of this.#listeners) listener(change);
  }

  async #inTurn<T>(uid: string, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(uid) ?? Promise.resolve();
    const turn = before.then(work, work);
    this.#turns.set(uid, turn);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(uid) === turn) this.#turns.delete(uid);
    }
  }

  async #watch(): Promise<void> {
    const { signal } = this.#node;
    while (!signal.aborted) {
      await Promise.all(this.all().map((actor) => this.#guard(actor, "liveness check", () => actor.checkAlive())));
      await delay(ALIVE_EVERY_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  async #guard(actor: Actor, what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#node.log.error(`${what} failed`, { actor: actor.name, error });
    }
  }
}

function newRecord({ actor, grant, program, held, clusterUid, upgradePending }: Assignment): ActorRecord {
  return {
    format: 1,
    actor,
    clusterUid,
    grant,
    // Whatever the epoch's number: a node that knows nothing of the actor can't tell a first life from a lost record.
    claim: { state: "needed", priorEpoch: 0 },
    program,
    held,
    deleting: false,
    generations: [],
    litter: [],
    packsToCollect: false,
    tags: [],
    oldestUnsavedMs: 0,
    floor: 0,
    envDigest: "",
    volumes: noVolumes(),
    upgradePending,
    operations: [],
    lastActivityMs: 0,
  };
}
