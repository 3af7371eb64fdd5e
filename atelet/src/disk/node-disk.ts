import { statfs } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type ClaimRequest, type DiskClaim, type DiskRoom } from "./contract.ts";
import { type DiskFloor, floorBytes } from "./floor.ts";
import { type Removable, removeFor } from "./removal.ts";

const WATCH_EVERY_MS = 5000;
/** While space is lacking. */
const TIGHT_LOOK_MS = 1000;
const CLAIM_LOOK_MS = 250;
/** How often it is looked whether the space of what was removed is free. */
const FREED_LOOKS = 8;
const SAY_AGAIN_MS = 600_000;
const RETRY_AFTER_MS = 5000;
const MIB = 2 ** 20;

export interface DiskSpace {
  sizeBytes: number;
  freeBytes: number;
}

export interface NodeDiskOptions {
  nodeName: string;
  /** The node folder. */
  dir: string;
  floor: DiskFloor;
  /** What all snapshots here may take; undefined: as much as the disk has. */
  quotaBytes: number | undefined;
  /** What snapshots take now; slow. */
  snapshotBytes: () => Promise<number>;
  /** What may go, in the order in which it goes. */
  removables: () => Removable[];
  /** Has what only this node has stored at once. @returns of how many actors. */
  hurry: () => number;
  removed: (removed: { kind: Removable["kind"]; reason: Lack["reason"]; bytes: number }) => void;
  refused: () => void;
  /** A person should hear that space is lacking. */
  tight: (message: string) => void;
  /** Absent: of the file system. */
  space?: () => Promise<DiskSpace>;
  log: Logger;
  signal: AbortSignal;
}

export interface DiskState extends DiskSpace {
  floorBytes: number;
  quotaBytes: number | undefined;
  claimedBytes: number;
  /** Why snapshots are removed or refused now; undefined: there is room. */
  tight: string | undefined;
}

export interface Lack {
  reason: "floor" | "quota";
  bytes: number;
}

interface Claim {
  bytes: number;
  kind: ClaimRequest["kind"];
}

/**
 * R24: keeps the disk of the node folder from filling up. What is free, less what is claimed, stays above the floor, and
 * what snapshots take below the quota. When one of them lacks, what can be had again is removed, oldest first; what only
 * this node has is stored at once, and removed then; a claim that still does not fit is refused. Claims are served in
 * the order in which they came: none fails for one that came later.
 */
export class NodeDisk implements DiskRoom {
  readonly #options: NodeDiskOptions;
  readonly #claims = new Set<Claim>();
  /** What snapshots took at the last count, and what was claimed since. */
  #counted: number | undefined;
  #sinceCount = 0;
  #removing: Promise<unknown> = Promise.resolve();
  #tight: string | undefined;
  #saidMs = -Infinity;

  constructor(options: NodeDiskOptions) {
    this.#options = options;
  }

  async claim(request: ClaimRequest): Promise<DiskClaim> {
    const { what, withinMs, urgent = false } = request;
    const claim = { bytes: request.bytes, kind: request.kind };
    this.#claims.add(claim);
    if (claim.kind === "snapshot") this.#sinceCount += claim.bytes;
    const end = (): void => {
      this.#claims.delete(claim);
    };
    const endMs = performance.now() + withinMs;
    try {
      for (;;) {
        const lack = await this.#makeRoom(claim);
        if (lack === undefined || urgent) return { end };
        const unstored = this.#options.hurry();
        if (unstored === 0 || performance.now() > endMs) throw await this.#noRoom(claim, lack, what, unstored);
        await delay(CLAIM_LOOK_MS, undefined, { signal: this.#options.signal });
      }
    } catch (error) {
      end();
      throw error;
    }
  }

  async state(): Promise<DiskState> {
    const space = await this.#space();
    return {
      ...space,
      floorBytes: floorBytes(this.#options.floor, space.sizeBytes),
      quotaBytes: this.#options.quotaBytes,
      claimedBytes: sum(this.#claims),
      tight: this.#tight,
    };
  }

  /** Looks after floor and quota until the atelet ends. */
  async watch(): Promise<void> {
    const { log, signal } = this.#options;
    while (!signal.aborted) {
      let everyMs = WATCH_EVERY_MS;
      try {
        if (await this.look()) everyMs = TIGHT_LOOK_MS;
      } catch (error) {
        log.warn("the node's disk could not be looked after", { error });
      }
      await delay(everyMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  /** @returns whether space is lacking though all was removed that may go now. */
  async look(): Promise<boolean> {
    // the atelet's own estimate says nothing of what others have removed or written
    this.#counted = undefined;
    const lack = await this.#makeRoom(undefined);
    if (lack === undefined) {
      if (this.#tight !== undefined) this.#options.log.info("the node's disk has room again");
      this.#tight = undefined;
      return false;
    }
    const unstored = this.#options.hurry();
    this.#tight = `${await this.#describe(lack)}; ${advice(unstored)}`;
    this.#say(this.#tight);
    return true;
  }

  /** One after the other: what one has removed may be enough for the next. @returns what lacks still. */
  #makeRoom(claim: Claim | undefined): Promise<Lack | undefined> {
    const turn = this.#removing.then(async () => {
      for (;;) {
        const lack = await this.#lack(claim);
        if (lack === undefined) return undefined;
        const { log, removables, removed } = this.#options;
        const going = removables().filter(({ kind }) => lack.reason === "floor" || kind !== "image");
        const gone = await removeFor(lack.bytes, going, {
          removed: (one) => {
            removed({ ...one, reason: lack.reason });
          },
          log,
        });
        if (gone === 0) return lack;
        this.#counted = undefined;
        log.info("removed copies to make room on the node's disk", { ...lack, removedBytes: gone });
        if (lack.reason === "floor") await this.#freed(claim, lack.bytes - gone);
      }
    });
    this.#removing = turn.catch(() => undefined);
    return turn;
  }

  /** What was removed is free when its last reader has closed it: until then nothing more goes. */
  async #freed(claim: Claim | undefined, expected: number): Promise<void> {
    for (let look = 0; look < FREED_LOOKS; look += 1) {
      const lack = await this.#lack(claim);
      if (lack?.reason !== "floor" || lack.bytes <= expected) return;
      await delay(CLAIM_LOOK_MS, undefined, { signal: this.#options.signal });
    }
  }

  async #lack(claim: Claim | undefined): Promise<Lack | undefined> {
    const earlier = this.#upTo(claim);
    const { sizeBytes, freeBytes } = await this.#space();
    const lacking = floorBytes(this.#options.floor, sizeBytes) + sum(earlier) - freeBytes;
    if (lacking > 0) return { reason: "floor", bytes: lacking };
    const over = claim?.kind === "image" ? 0 : await this.#overQuota(earlier);
    return over > 0 ? { reason: "quota", bytes: over } : undefined;
  }

  async #overQuota(claims: readonly Claim[]): Promise<number> {
    const { quotaBytes, snapshotBytes } = this.#options;
    if (quotaBytes === undefined) return 0;
    if (this.#counted !== undefined && this.#counted + this.#sinceCount <= quotaBytes) return 0;
    this.#sinceCount = sum(snapshots(this.#claims));
    this.#counted = await snapshotBytes();
    return this.#counted + sum(snapshots(claims)) - quotaBytes;
  }

  /** In the order in which they came. Of what is claimed a part may be written already: without one none of them count. */
  #upTo(claim: Claim | undefined): Claim[] {
    const claims = [...this.#claims];
    return claim === undefined ? [] : claims.slice(0, claims.indexOf(claim) + 1);
  }

  async #space(): Promise<DiskSpace> {
    if (this.#options.space !== undefined) return this.#options.space();
    const { blocks, bavail, bsize } = await statfs(this.#options.dir);
    return { sizeBytes: blocks * bsize, freeBytes: bavail * bsize };
  }

  async #noRoom(claim: Claim, lack: Lack, what: string, unstored: number): Promise<SubstrateError> {
    const message = `${await this.#describe(lack)}: no room for ${what} of up to ${mib(claim.bytes)}; ${advice(unstored)}`;
    this.#options.refused();
    this.#say(message);
    return new SubstrateError("NO_ROOM", message, { retryAfterMs: RETRY_AFTER_MS });
  }

  async #describe({ reason }: Lack): Promise<string> {
    const { nodeName, dir, quotaBytes = 0 } = this.#options;
    if (reason === "quota") {
      const takes = mib(await this.#options.snapshotBytes());
      return `node ${nodeName}: snapshots in ${dir} take ${takes} of ${mib(quotaBytes)} that they may (--snapshot-quota-bytes)`;
    }
    const { freeBytes, sizeBytes, floorBytes: floor } = await this.state();
    const kept = `${mib(floor)} are kept free (--disk-floor)`;
    return `node ${nodeName}: the disk of ${dir} has ${mib(freeBytes)} free of ${mib(sizeBytes)}, and ${kept}`;
  }

  #say(message: string): void {
    const nowMs = performance.now();
    if (nowMs - this.#saidMs < SAY_AGAIN_MS) return;
    this.#saidMs = nowMs;
    this.#options.log.warn("the node's disk is tight", { message });
    this.#options.tight(message);
  }
}

function snapshots(claims: Iterable<Claim>): Claim[] {
  return [...claims].filter(({ kind }) => kind === "snapshot");
}

function sum(claims: Iterable<Claim>): number {
  return [...claims].reduce((bytes, claim) => bytes + claim.bytes, 0);
}

function mib(bytes: number): string {
  return `${Math.round(bytes / MIB)} MiB`;
}

function advice(unstored: number): string {
  const free = "free space on it, enlarge it, or delete actors that nobody needs";
  return unstored === 0
    ? `nothing is left there that may be removed: ${free}`
    : `snapshots of ${unstored} actors are being stored, and leave it then: see that their store answers, or ${free}`;
}
