import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type SnapshotStore } from "../store/snapshots.ts";
import { Tombstones } from "./tombstones.ts";

const prefix = (actorUid: string) => ({ clusterUid: "c", namespaceUid: "n", actorUid });

let dir: string;
let ending: AbortController;
const down = new Set<string>();
let removed: string[] = [];
let counts: number[] = [];

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "tombstones-"));
  down.clear();
  removed = [];
  counts = [];
});

afterEach(async () => {
  ending.abort();
  await rm(dir, { recursive: true });
});

async function open(): Promise<Tombstones> {
  const log = createLogger("test", "crit");
  log.silent = true;
  ending = new AbortController();
  const tombstones = new Tombstones({
    dir: join(dir, "tombstones"),
    store: (name) => {
      const store: Pick<SnapshotStore, "deletePrefix"> = {
        deletePrefix: ({ actorUid }) => {
          if (down.has(name)) return Promise.reject(new SubstrateError("STORE_UNAVAILABLE", `${name} is down`));
          removed.push(`${name}/${actorUid}`);
          return Promise.resolve("removed");
        },
      };
      return store as SnapshotStore;
    },
    waiting: (count) => counts.push(count),
    log,
    signal: ending.signal,
  });
  await tombstones.load();
  return tombstones;
}

const files = () => readdir(join(dir, "tombstones"));

it("removes from every store that answers, and from the others when they are back", async () => {
  const tombstones = await open();
  down.add("b");
  await tombstones.add({ prefix: prefix("1"), title: "actor d/1", stores: ["a", "b"] });
  await vi.waitFor(() => {
    expect(removed).toEqual(["a/1"]);
  });
  expect(tombstones.has("1")).toBe(true);
  await vi.waitFor(async () => {
    expect(await files()).toEqual(["1.json"]);
  });
  down.clear();
  // The next one to go wakes the sweep of its store.
  await tombstones.add({ prefix: prefix("2"), title: "actor d/2", stores: ["b"] });
  await vi.waitFor(async () => {
    expect(await files()).toEqual([]);
  });
  expect(removed.sort()).toEqual(["a/1", "b/1", "b/2"]);
  expect(counts.at(-1)).toBe(0);
});

it("is taken up by the next atelet", async () => {
  down.add("a");
  await (await open()).add({ prefix: prefix("1"), title: "actor d/1", stores: ["a"] });
  ending.abort();
  down.clear();
  await open();
  await vi.waitFor(async () => {
    expect(await files()).toEqual([]);
  });
  expect(removed).toEqual(["a/1"]);
  await writeFile(join(dir, "tombstones", "2.json"), "{}");
  await expect(open()).rejects.toThrow("2.json is damaged");
});

it("waits until nothing writes there any more, also when that ends badly", async () => {
  const tombstones = await open();
  const writing = Promise.withResolvers<undefined>();
  await tombstones.add({ prefix: prefix("1"), title: "actor d/1", stores: ["a"], after: writing.promise });
  await new Promise(setImmediate);
  expect(removed).toEqual([]);
  writing.reject(new Error("broke"));
  await vi.waitFor(() => {
    expect(removed).toEqual(["a/1"]);
  });
});
