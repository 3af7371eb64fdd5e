import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, describe, expect, it } from "vitest";
import { type DiskFloor, floorBytes, parseFloor } from "./floor.ts";
import { NodeDisk, type NodeDiskOptions } from "./node-disk.ts";
import { type Removable } from "./removal.ts";

const log = createLogger("test", "crit");
log.silent = true;
const GIB = 2 ** 30;

/** A disk of 1,000 bytes with copies on it, oldest first. */
class World {
  used = 0;
  readonly copies = new Map<string, number>();
  /** What only this node has: when it is hurried, it is stored after so many looks. */
  readonly unstored = new Map<string, number>();
  storeAnswers = true;
  readonly gone: string[] = [];
  readonly said: string[] = [];
  readonly ending = new AbortController();
  readonly disk: NodeDisk;

  constructor(options: Partial<NodeDiskOptions> & { floor: DiskFloor }) {
    this.disk = new NodeDisk({
      nodeName: "n",
      dir: "/node",
      quotaBytes: undefined,
      snapshotBytes: () => Promise.resolve(this.snapshots()),
      removables: () => this.#removables(),
      hurry: () => {
        const count = this.unstored.size;
        if (this.storeAnswers) {
          for (const [name, bytes] of this.unstored) this.copies.set(name, bytes);
          this.unstored.clear();
        }
        return count;
      },
      removed: ({ reason, kind }) => this.gone.push(`${reason} ${kind}`),
      refused: () => this.gone.push("refused"),
      tight: (message) => this.said.push(message),
      space: () => Promise.resolve({ sizeBytes: 1000, freeBytes: 1000 - this.used - this.snapshots() }),
      log,
      signal: this.ending.signal,
      ...options,
    });
  }

  snapshots(): number {
    return [...this.copies.values(), ...this.unstored.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  claim(bytes: number, changes: { urgent?: boolean; withinMs?: number; kind?: "image" | "snapshot" } = {}) {
    return this.disk.claim({ bytes, what: "a snapshot of actor ns/a", withinMs: 0, kind: "snapshot", ...changes });
  }

  #removables(): Removable[] {
    return [...this.copies].map(([name, bytes]) => ({
      kind: "generation",
      name,
      bytes: () => Promise.resolve(bytes),
      remove: () => Promise.resolve(this.copies.delete(name)),
    }));
  }
}

const made: World[] = [];
const world = (options: Partial<NodeDiskOptions> & { floor: DiskFloor }): World => {
  const own = new World(options);
  made.push(own);
  return own;
};
afterEach(() => {
  for (const { ending } of made.splice(0)) ending.abort();
});
const keep100: DiskFloor = { kind: "bytes", bytes: 100 };

describe("R24: room on the node's disk", () => {
  it("removes the oldest copies, as many as are needed and no more", async () => {
    const own = world({ floor: keep100 });
    for (const name of ["old", "older", "new"]) own.copies.set(name, 200);
    own.used = 150;
    (await own.claim(100)).end();
    expect([...own.copies.keys()]).toEqual(["old", "older", "new"]);
    (await own.claim(400)).end();
    expect([...own.copies.keys()]).toEqual(["new"]);
    expect(own.gone).toEqual(["floor generation", "floor generation"]);
  });

  it("counts what others have claimed before, in the order in which they came", async () => {
    const own = world({ floor: keep100 });
    own.used = 400;
    const first = await own.claim(400);
    await expect(own.claim(200)).rejects.toMatchObject({ code: "NO_ROOM" });
    // of two at once that don't fit together the first one does
    first.end();
    const both = await Promise.allSettled([own.claim(400), own.claim(200)]);
    expect(both.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  });

  it("has stored at once what only this node has, and removes it then", async () => {
    const own = world({ floor: keep100 });
    own.unstored.set("pending", 800);
    (await own.claim(300, { withinMs: 5000 })).end();
    expect(own.copies.size).toBe(0);
  });

  it("refuses what does not fit: node, disk, floor and what to do; a person hears of it once", async () => {
    const own = world({ floor: keep100 });
    own.storeAnswers = false;
    own.unstored.set("pending", 800);
    const refused =
      /^node n: the disk of \/node has .* free of .* kept free \(--disk-floor\): no room for a snapshot of actor ns\/a .*1 actors are being stored.*store answers/;
    await expect(own.claim(300)).rejects.toMatchObject({
      code: "NO_ROOM",
      message: expect.stringMatching(refused) as string,
    });
    await expect(own.claim(300)).rejects.toMatchObject({ code: "NO_ROOM" });
    expect(own.said).toHaveLength(1);
    // what would be lost for good may use what is kept free
    (await own.claim(150, { urgent: true })).end();
    expect((await own.disk.state()).claimedBytes).toBe(0);
  });

  it("keeps what is free above the floor without a claim, too", async () => {
    const own = world({ floor: { kind: "percent", percent: 10 } });
    own.copies.set("old", 300).set("new", 300);
    own.used = 500;
    expect(await own.disk.look()).toBe(false);
    expect([...own.copies.keys()]).toEqual(["new"]);
    own.used = 950;
    expect(await own.disk.look()).toBe(true);
    expect(own.said).toHaveLength(1);
    expect((await own.disk.state()).tight).toContain("nothing is left there");
    own.used = 100;
    expect(await own.disk.look()).toBe(false);
    expect((await own.disk.state()).tight).toBeUndefined();
  });

  it("keeps snapshots within their quota; images are none", async () => {
    const own = world({ floor: keep100, quotaBytes: 500 });
    own.copies.set("old", 200).set("new", 200);
    (await own.claim(100)).end();
    expect(own.copies.size).toBe(2);
    (await own.claim(200)).end();
    expect([...own.copies.keys()]).toEqual(["new"]);
    expect(own.gone).toEqual(["quota generation"]);
    (await own.claim(600, { kind: "image" })).end();
    await expect(own.claim(600)).rejects.toMatchObject({
      message: expect.stringContaining("--snapshot-quota-bytes") as string,
    });
  });
});

it("the floor that suits a disk: 2 GiB or 5 %, of a small one 10 %", () => {
  const of = (text: string, sizeBytes: number): number => floorBytes(parseFloor(text), sizeBytes);
  expect(of("auto", 100 * GIB)).toBe(5 * GIB);
  expect(of("auto", 30 * GIB)).toBe(2 * GIB);
  expect(of("auto", 10 * GIB)).toBe(GIB);
  expect(of("7", GIB)).toBe(7);
  expect(of("50%", GIB)).toBe(GIB / 2);
  expect(() => parseFloor("51%")).toThrow("expects auto");
});
