import { writeFile } from "node:fs/promises";
import { SubstrateError, asSubstrateError } from "@substrate/lib/errors.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { KeptPages } from "../generations/kept-pages.ts";
import { removeFolder } from "../node-files.ts";
import { manifestKey } from "../store/layout.ts";
import { type Committed } from "../store/snapshots.ts";
import { type ActorContext } from "./actor-context.ts";
import { loseDamaged } from "./damaged.ts";
import { type Digests } from "./digests.ts";
import { manifestOf } from "./manifest.ts";
import { Outdated } from "./outdated.ts";
import { pageBases } from "./page-bases.ts";
import { type Generation } from "./record.ts";

/** An outage is retried at growing pauses. */
const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 60_000;

/**
 * What heals by itself, by a person's hand or with the next atelet, so that the generation stays PENDING: INVALID is a
 * store not configured, SNAPSHOT_DAMAGED what the store has of an earlier one.
 */
const passing = new Set([
  ...["STORE_UNAVAILABLE", "STORE_FOREIGN", "INVALID", "INTERNAL", "TIMEOUT"],
  ...["SHUTTING_DOWN", "SNAPSHOT_DAMAGED"],
]);

interface Waiter {
  generation: number;
  resolve: () => void;
  reject: (error: SubstrateError) => void;
}

/**
 * Brings one actor's newest generation into the store: after uploadDelay, at the latest when the oldest unsaved state
 * is uploadWithin old, at once when somebody waits for it; then lets older generations go (commit, then collect).
 */
export interface UploaderOptions extends ActorContext {
  digests: Digests;
}

export class Uploader {
  readonly #options: UploaderOptions;
  readonly #outdated: Outdated;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #uploading: number | undefined;
  #failures = 0;
  /** Monotonic clock. */
  #notBeforeMs = 0;
  #stopped = false;
  #paused = 0;
  /** Up to this generation nothing waits for its delay. */
  #undelayed = 0;
  #waiters: Waiter[] = [];

  constructor(options: UploaderOptions) {
    this.#options = options;
    this.#outdated = new Outdated(options);
  }

  /** Looks at what there is to do; to be called after every commit of a generation and at a start. */
  schedule(): void {
    clearTimeout(this.#timer);
    const { signal } = this.#options.node;
    if (this.#stopped || signal.aborted || this.#paused > 0 || this.#running !== undefined) return;
    const dueMs = this.#dueMs();
    if (dueMs === undefined) return;
    const waitMs = Math.max(dueMs - Date.now(), this.#notBeforeMs - performance.now(), 0);
    this.#timer = setTimeout(() => {
      this.#start();
    }, waitMs);
  }

  /** Resolves when this generation or a newer one is COMPLETED; rejects when it can never be. Skips the delay. */
  flush(generation: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiters.push({ generation, resolve, reject });
      this.#notBeforeMs = 0;
      this.#settle();
      this.schedule();
    });
  }

  /** As flush, for who calls that a little later, and hears then what came of it. */
  hurry(generation: number): void {
    this.flush(generation).catch(() => undefined);
  }

  /** The node's disk is full: the newest generation is stored at once, though after an outage not before its next try. */
  skipDelay(): void {
    const target = this.#target();
    if (target === undefined || this.#undelayed >= target.generation) return;
    this.#undelayed = target.generation;
    this.schedule();
  }

  /** Waits for an upload under way; none starts until the returned function is called. */
  async pause(): Promise<() => void> {
    this.#paused += 1;
    clearTimeout(this.#timer);
    await this.#running;
    return () => {
      this.#paused -= 1;
      this.#settle();
      this.schedule();
    };
  }

  /**
   * Generations that a newer one on this node has replaced need no upload of their own. Nobody waits until their files
   * are gone: of a large one that takes as long as a checkpoint.
   */
  dropReplaced(): void {
    const { generations, record, digests, log } = this.#options;
    const newest = generations.newest();
    for (const older of [...generations.all()]) {
      if (newest === undefined || older.generation >= newest.generation) continue;
      if (older.generation === this.#uploading || this.#outdated.isTagged(older)) continue;
      // what is left of one that was damaged goes when a newer one is stored
      if (generations.isSetAside(older.generation)) continue;
      digests.giveUp(older.generation);
      generations.evict(older.generation).catch((error: unknown) => {
        log.warn("files of a replaced snapshot could not be removed yet", { generation: older.generation, error });
      });
      if (older.storage.state === "COMPLETED") continue;
      generations.forget(older.generation);
      if (older.storage.message !== "") record.litter.push({ generation: older.generation, epoch: older.epoch });
    }
  }

  /** Ends without waiting for the store; resolves when nothing of it runs any more. */
  async stop(reason: SubstrateError): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#settle();
    for (const { reject } of this.#waiters.splice(0)) reject(reason);
    await Promise.all([this.#running, this.#options.digests.stop()]);
  }

  /** Whether older generations, or parts of replaced ones, are still to be removed from the store. */
  get isCollecting(): boolean {
    return this.#outdated.isCollecting;
  }

  #dueMs(): number | undefined {
    const { record } = this.#options;
    const target = this.#target();
    if (target === undefined) return this.isCollecting || this.#outdated.hasPacks ? 0 : undefined;
    if (this.#waiters.length > 0 || this.#undelayed >= target.generation) return 0;
    const nowMs = Date.now();
    return Math.min(
      target.createdAtMs + record.program.uploadDelayMs,
      record.oldestUnsavedMs + record.program.uploadWithinMs,
      // what was made in the future was made before the clock was put back
      nowMs + record.program.uploadDelayMs,
    );
  }

  #target(): Generation | undefined {
    const { generations } = this.#options;
    const newest = generations.newest();
    if (newest?.storage.state !== "PENDING") return undefined;
    return generations.local(newest.generation) === undefined ? undefined : newest;
  }

  #start(): void {
    if (this.#running !== undefined) return;
    const target = this.#target();
    this.#uploading = target?.generation;
    this.#running = (target === undefined ? this.#collect() : this.#upload(target))
      .catch((error: unknown) => {
        this.#options.log.error("upload bookkeeping failed", { generation: target?.generation, error });
      })
      .finally(() => {
        this.#running = undefined;
        this.#uploading = undefined;
        this.#settle();
        this.schedule();
      });
  }

  async #upload(target: Generation): Promise<void> {
    const { node, record, generations, log, save } = this.#options;
    const unpin = generations.pin(target.generation);
    await this.#begun(target);
    const phases = new Phases();
    try {
      const result = await this.#commit(target, phases);
      target.storage = {
        state: "COMPLETED",
        manifest: manifestKey(target.generation, target.epoch),
        location: result.location,
        digest: result.digest,
        storedBytes: result.storedBytes,
        completedAtMs: Date.now(),
        message: "",
        reason: "",
      };
      this.#failures = 0;
      const newest = generations.newest();
      record.oldestUnsavedMs = newest === target || newest === undefined ? 0 : newest.createdAtMs;
      node.metrics.uploads.inc({ outcome: "ok" });
      log.info("snapshot stored", {
        generation: target.generation,
        sizeBytes: target.sizeBytes,
        storedBytes: result.storedBytes,
        ...phases.fields(),
      });
    } catch (thrown) {
      const error = asSubstrateError(thrown);
      const damage = await this.#damage(target, error);
      if (damage === undefined) this.#failed(target, error);
      else await loseDamaged(this.#options, target, damage);
    } finally {
      await removeFolder(generations.scratch(target.generation));
      await unpin();
    }
    await save({ durable: false });
    this.#settle();
    if (target.storage.state === "COMPLETED") await this.#collect();
  }

  async #commit(target: Generation, phases: Phases): Promise<Committed> {
    const { node, record, generations, digests } = this.#options;
    const number = target.generation;
    const packed = await phases.run("archive", () => this.#packVolumes(target));
    await phases.run("table", () => digests.ready(number));
    const local = generations.local(number);
    // sizes, and looks where they are known: what is stored from here on counts as what was written
    const damage = local && (await generations.damage(local));
    if (damage !== undefined) throw new SubstrateError("SNAPSHOT_DAMAGED", damage);
    const { table } = generations.pageFiles(number);
    const { bases, release } = await pageBases(this.#options);
    try {
      const content = { dirs: [generations.path(number), ...packed], pages: { table, bases }, phases };
      const facts = manifestOf(record, target, local);
      const result = await node.store(record.program.store).commit(this.#options.prefix, facts, content);
      await this.#keep(target, result);
      return result;
    } finally {
      await release();
    }
  }

  /** What is wrong with its files here, which are read for it if that may be why it could not be stored. */
  async #damage({ generation }: Generation, { code }: SubstrateError): Promise<string | undefined> {
    const { generations, log } = this.#options;
    const local = generations.local(generation);
    if (code !== "SNAPSHOT_DAMAGED" || local === undefined) return undefined;
    generations.distrust(generation);
    try {
      return await generations.damage(local);
    } catch (error) {
      log.warn("it is not known whether a snapshot is damaged", { generation, error });
      return undefined;
    }
  }

  /** Until it has ended, parts of it may be in the store: the next atelet must know, should this one end meanwhile. */
  async #begun({ generation, storage }: Generation): Promise<void> {
    const { log, record, save } = this.#options;
    if (storage.message !== "" && record.packsToCollect) return;
    if (storage.message === "") storage.message = "being uploaded";
    record.packsToCollect = true;
    await save({ durable: false }).catch((error: unknown) => {
      log.warn("the beginning of an upload could not be recorded", { generation, error });
    });
  }

  /** What the next upload shares pages with; without, it stores all of them. */
  async #keep({ generation, epoch }: Generation, { index }: Committed): Promise<void> {
    const { generations, log, files } = this.#options;
    if (index === undefined) return;
    try {
      const own = generations.pageFiles(generation);
      await new KeptPages(files.stored).keep(manifestKey(generation, epoch), own.table, index);
      await writeFile(own.index, index, { mode: 0o600 });
    } catch (error) {
      log.warn("the page table of a stored snapshot could not be kept", { generation, error });
    }
  }

  /** @returns the folder with an archive of each volume, if there are any. */
  async #packVolumes({ generation }: Generation): Promise<string[]> {
    const { generations, volumes } = this.#options;
    if ((generations.local(generation)?.volumes ?? []).length === 0) return [];
    const dir = generations.scratch(generation);
    await volumes.pack(() => generations.local(generation)?.volumes ?? [], dir);
    return [dir];
  }

  #failed(target: Generation, error: SubstrateError): void {
    const { node, log, record } = this.#options;
    node.metrics.uploads.inc({ outcome: "failed" });
    target.storage.reason = error.code;
    if (passing.has(error.code)) {
      const pauseMs = this.#pause();
      target.storage.message = `upload to store ${record.program.store} failed, next try in ${pauseMs / 1000} s: ${error.message}`;
      log.warn("upload failed", { generation: target.generation, pauseMs, error });
      return;
    }
    target.storage.state = error.code === "SUPERSEDED" ? "LOST" : "FAILED";
    target.storage.message = error.message;
    log.error("snapshot cannot be stored", { generation: target.generation, state: target.storage.state, error });
  }

  /** Nothing is tried for a while. @returns how long. */
  #pause(): number {
    const pauseMs = Math.min(FIRST_RETRY_MS * 2 ** this.#failures, LAST_RETRY_MS);
    this.#failures += 1;
    this.#notBeforeMs = performance.now() + pauseMs;
    return pauseMs;
  }

  /** A failing collection blocks nothing and is tried again, also by the next atelet if this one ends meanwhile. */
  async #collect(): Promise<void> {
    if (await this.#outdated.collect()) this.#failures = 0;
    else this.#pause();
    await this.#options.save({ durable: false });
  }

  #settle(): void {
    const { generations } = this.#options;
    this.#waiters = this.#waiters.filter(({ generation, resolve, reject }) => {
      const known = generations.all().filter((g) => g.generation >= generation);
      if (known.some(({ storage }) => storage.state === "COMPLETED")) {
        resolve();
        return false;
      }
      const lost = known.find(({ storage }) => storage.state === "LOST" || storage.state === "FAILED");
      if (lost !== undefined && known.every(({ storage }) => storage.state !== "PENDING")) {
        reject(asSubstrateError(new Error(`generation ${lost.generation} was not stored: ${lost.storage.message}`)));
        return false;
      }
      return true;
    });
  }
}
