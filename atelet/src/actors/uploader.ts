import { writeFile } from "node:fs/promises";
import { type SubstrateError, asSubstrateError } from "@substrate/lib/errors.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { KeptPages } from "../generations/kept-pages.ts";
import { removeFolder } from "../node-files.ts";
import { manifestKey } from "../store/layout.ts";
import { type Committed } from "../store/snapshots.ts";
import { type ActorContext } from "./actor-context.ts";
import { type Digests } from "./digests.ts";
import { manifestOf } from "./manifest.ts";
import { pageBases } from "./page-bases.ts";
import { type Generation } from "./record.ts";

/** An outage is retried at growing pauses. */
const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 60_000;

/** What heals by itself or by a person's hand, so that the generation stays PENDING: INVALID is a store not configured. */
const passing = new Set(["STORE_UNAVAILABLE", "STORE_FOREIGN", "INVALID", "INTERNAL", "TIMEOUT"]);

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
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #uploading: number | undefined;
  #failures = 0;
  #notBeforeMs = 0;
  #stopped = false;
  #paused = 0;
  /** Up to this generation nothing waits for its delay. */
  #undelayed = 0;
  #waiters: Waiter[] = [];

  constructor(options: UploaderOptions) {
    this.#options = options;
  }

  /** Looks at what there is to do; to be called after every commit of a generation and at a start. */
  schedule(): void {
    clearTimeout(this.#timer);
    if (this.#stopped || this.#paused > 0 || this.#running !== undefined) return;
    const dueMs = this.#dueMs();
    if (dueMs === undefined) return;
    const waitMs = Math.max(dueMs - Date.now(), this.#notBeforeMs - Date.now(), 0);
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
      if (older.generation === this.#uploading || this.#isTagged(older)) continue;
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
    return this.#outdated().length > 0 || (this.#completed() !== undefined && this.#options.record.litter.length > 0);
  }

  #dueMs(): number | undefined {
    const { record } = this.#options;
    const target = this.#target();
    if (target === undefined) return this.isCollecting || this.#hasPacksToCollect() ? 0 : undefined;
    if (this.#waiters.length > 0 || this.#undelayed >= target.generation) return 0;
    return Math.min(
      target.createdAtMs + record.program.uploadDelayMs,
      record.oldestUnsavedMs + record.program.uploadWithinMs,
    );
  }

  /** Whoever has the actor next removes them, too. */
  #hasPacksToCollect(): boolean {
    return this.#completed() !== undefined && this.#options.record.packsToCollect;
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
      this.#failed(target, asSubstrateError(thrown));
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
    const { table } = generations.pageFiles(number);
    const { bases, release } = await pageBases(this.#options);
    try {
      const content = { dirs: [generations.path(number), ...packed], pages: { table, bases }, phases };
      const facts = manifestOf(record, target, generations.local(number));
      const result = await node.store(record.program.store).commit(this.#options.prefix, facts, content);
      await this.#keep(target, result);
      return result;
    } finally {
      await release();
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
    this.#notBeforeMs = Date.now() + pauseMs;
    return pauseMs;
  }

  /** The newest in the store, after which older ones may go; not if it could not be restored. */
  #completed(): Generation | undefined {
    const newest = this.#options.generations.all().find(({ storage }) => storage.state === "COMPLETED");
    return newest?.restoreFailures === 0 ? newest : undefined;
  }

  /** Generations that go, as a newer one is in the store: commit, then collect. */
  #outdated(): Generation[] {
    const { record, generations } = this.#options;
    const completed = this.#completed();
    if (completed === undefined) return [];
    const stored = generations.all().filter(({ storage }) => storage.state === "COMPLETED");
    const kept = stored.slice(0, record.program.history);
    return generations
      .all()
      .filter((one) => one.generation < completed.generation && !kept.includes(one) && !this.#isTagged(one));
  }

  /** A tag of it is still on its way: until it is there, this is the only place that has its state. */
  #isTagged({ generation, epoch }: Generation): boolean {
    return this.#options.record.tags.some((tag) => tag.generation === generation && tag.epoch === epoch);
  }

  /** A failing collection blocks nothing and is tried again, also by the next atelet if this one ends meanwhile. */
  async #collect(): Promise<void> {
    const { node, record, generations, prefix, log, save } = this.#options;
    const completed = this.#completed();
    if (completed === undefined) {
      log.warn("older generations are kept: the newest one could not be restored");
      return;
    }
    let failed = false;
    for (const older of generations.all().filter((g) => g.generation < completed.generation)) {
      if (this.#isTagged(older)) continue;
      try {
        await generations.evict(older.generation);
        if (!this.#outdated().includes(older)) continue;
        // of one that was replaced while it was being uploaded parts are there, though no manifest
        if (older.storage.manifest !== "" || older.storage.message !== "") {
          await node.store(record.program.store).collect(prefix, older.generation, older.epoch);
        }
        generations.forget(older.generation);
      } catch (error) {
        failed = true;
        log.warn("an older generation could not be removed yet", { generation: older.generation, error });
      }
    }
    for (const litter of [...record.litter]) {
      try {
        await node.store(record.program.store).collect(prefix, litter.generation, litter.epoch);
        record.litter.splice(record.litter.indexOf(litter), 1);
      } catch (error) {
        failed = true;
        log.warn("what is left of a replaced upload could not be removed yet", { ...litter, error });
      }
    }
    if (!failed && !(await this.#collectPacks())) failed = true;
    if (failed) this.#pause();
    else this.#failures = 0;
    await save({ durable: false });
  }

  /** @returns false if it is to be tried again. */
  async #collectPacks(): Promise<boolean> {
    const { node, record, prefix, log } = this.#options;
    if (!record.packsToCollect) return true;
    try {
      await node.store(record.program.store).collectPacks(prefix, record.grant.epoch);
    } catch (error) {
      log.warn("packs that no generation names could not be removed yet", { error });
      // who holds the higher epoch removes them
      if (asSubstrateError(error).code !== "SUPERSEDED") return false;
    }
    record.packsToCollect = false;
    return true;
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
