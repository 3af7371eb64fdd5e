import { stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { type Logger } from "@substrate/lib/log.ts";
import { isMissing } from "../node-files.ts";
import { type Loan } from "../ledger/contract.ts";
import { type AsyncPageCache } from "./cache-worker.ts";
import { type Eviction, isClean, pinFile, type PinnedFile } from "./page-cache.ts";

export interface WriteBackOptions {
  cache: AsyncPageCache;
  /** R3: whether this much memory is wanted elsewhere; only then write-out is started. */
  tight: (bytes: number) => Promise<boolean>;
  log: Logger;
  /** R25: called for every file whose write-out was started. */
  flushed: () => void;
  /** R25: called for every file that was to be dropped from memory. */
  evicted: (outcome: Eviction) => void;
  /** R15: called for every loan that came back only because the bound had passed, with what to tell a person. */
  gaveUp: (message: string) => void;
  /** R15. Default 10 minutes. */
  boundMs?: number;
  signal: AbortSignal;
}

/** Files that are not known to be on the disk, and what was lent for them. */
export interface Followed {
  paths: readonly string[];
  bytes: number;
  since: Date;
}

export type WriteBackResult = "clean" | "gone" | "gave up";

/** R11: growing, so that a slow disk isn't asked all the time and a fast one isn't waited for. */
const FIRST_POLL_MS = 25;
const LAST_POLL_MS = 3000;

/**
 * Follows a snapshot's files until they are on disk or gone, then returns the loan. Never fsyncs (R11), holds no file
 * open while it waits (R13), writes nothing out unless memory is tight (R3).
 */
export class WriteBack {
  readonly #options: WriteBackOptions;
  readonly #followed = new Set<Followed>();

  constructor(options: WriteBackOptions) {
    this.#options = options;
  }

  /**
   * Drops a file from memory that a restore has read completely, if memory is wanted elsewhere: it is in the sandbox now.
   * Where there is room it stays for the next resume (R8). Never one that isn't clean (R18).
   */
  async dropIfTight(path: string): Promise<Eviction | "kept"> {
    let file: PinnedFile;
    try {
      const { size } = await stat(path);
      if (!(await this.#options.tight(size))) return "kept";
      file = await pinFile(path);
    } catch (error) {
      if (isMissing(error)) return "gone";
      throw error;
    }
    const outcome = await this.#options.cache.evict(file);
    this.#options.evicted(outcome);
    return outcome;
  }

  /** Oldest first. */
  followed(): readonly Followed[] {
    return [...this.#followed];
  }

  /**
   * Pins the files as they are now and follows them in the background.
   * @throws if a path is missing; the loan is returned then (R13).
   * @returns when every file is clean or gone, or the bound has passed.
   */
  async follow(paths: readonly string[], loan: Loan): Promise<WriteBackResult> {
    const followed = { paths, bytes: loan.bytes, since: new Date() };
    this.#followed.add(followed);
    try {
      const files = await Promise.all(paths.map(pinFile));
      return await this.#untilClean(files, loan.bytes);
    } finally {
      this.#followed.delete(followed);
      loan.return();
    }
  }

  async #untilClean(files: PinnedFile[], bytes: number): Promise<WriteBackResult> {
    const { cache, log, signal, boundMs = 600_000 } = this.#options;
    const endMs = performance.now() + boundMs;
    let waiting = files;
    let gone = 0;
    let writtenOut = false;
    for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(pollMs * 2, LAST_POLL_MS)) {
      const states = await Promise.all(waiting.map(async (file) => ({ file, state: await cache.inspect(file) })));
      gone += states.filter(({ state }) => state === "gone").length;
      waiting = states.filter(({ state }) => !isClean(state)).map(({ file }) => file);
      if (waiting.length === 0) return gone === files.length ? "gone" : "clean";
      if (performance.now() > endMs) {
        const files = waiting.map(({ path }) => path);
        log.warn("snapshot files are still not on disk; the memory lent for them is counted as free again", {
          files,
          boundMs,
        });
        this.#options.gaveUp(
          `${files.join(", ")} could not be brought to the disk within ${Math.round(boundMs / 1000)} s: is the disk slow, ` +
            "broken or full? The memory lent for it is counted as free again, though it is not",
        );
        return "gave up";
      }
      if (!writtenOut && (await this.#options.tight(bytes))) {
        writtenOut = true;
        for (const file of waiting) this.#writeOut(file);
      }
      if (signal.aborted) return "gave up";
      await delay(pollMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Not waited for: on a broken disk it may stand still for ever (R15). */
  #writeOut(file: PinnedFile): void {
    const { cache, log, flushed } = this.#options;
    flushed();
    cache.writeOut(file).catch((error: unknown) => {
      log.warn("a snapshot file could not be written out: it is left to the kernel", { path: file.path, error });
    });
  }
}
