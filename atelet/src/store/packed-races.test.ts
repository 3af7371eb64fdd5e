import fc from "fast-check";
import { rm } from "node:fs/promises";
import { beforeAll, expect, it, vi } from "vitest";
import { asSubstrateError } from "@substrate/lib/errors.ts";
import { MemoryStore } from "./memory-store.ts";
import { type ObjectSnapshotStore } from "./object-snapshots.ts";
import { changed, litter, missingOf, PackedWorld, prefixOf, randomPages } from "./packed-world.ts";
import { type KnownPages } from "./snapshots.ts";

vi.setConfig({ testTimeout: 60_000 });

let world: PackedWorld;
beforeAll(async () => {
  world = await PackedWorld.create();
  return async () => {
    await world.engine.close();
    await rm(world.dir, { recursive: true });
  };
});

const pages = randomPages(12);
const died = "died";

/** Calls of one process: each waits for its turn, and none happens after the process has ended. */
class Races {
  readonly objects = new MemoryStore();
  readonly violations = new Set<string>();
  readonly #scheduler: fc.Scheduler;
  readonly #check: () => string[];

  constructor(scheduler: fc.Scheduler, check: (objects: ReadonlyMap<string, Buffer>) => string[]) {
    this.#scheduler = scheduler;
    this.#check = () => check(this.objects.objects);
  }

  /** A process that ends before its n-th call. */
  process(endsBefore: number, graceMs?: number): ObjectSnapshotStore {
    let calls = 0;
    const before = async (call: string, key: string): Promise<void> => {
      await this.#scheduler.schedule(Promise.resolve(), `${call} ${key}`);
      for (const missing of this.#check()) this.violations.add(`before ${call} ${key}: ${missing}`);
      calls += 1;
      if (calls >= endsBefore) throw new Error(died);
    };
    return world.over(new MemoryStore(before, this.objects.objects), graceMs);
  }
}

/** What one atelet does with an actor: claims, restores what the head names, stores generations, collects. */
async function live(store: ObjectSnapshotStore, epoch: number, commits: number): Promise<void> {
  const prefix = prefixOf("a");
  try {
    const head = await store.claim(prefix, epoch);
    let bases: KnownPages[] = [];
    let content = pages;
    if (head.manifest !== null) {
      const fetched = await world.fetch(store, prefix, head.manifest);
      bases = [fetched.known];
      content = fetched.content;
    }
    let previous = head;
    for (let i = 1; i <= commits; i += 1) {
      content = changed(content, (epoch * 5 + i) % 12);
      const generation = head.generation + i;
      bases = [await world.commit(store, prefix, [generation, epoch], content, bases)];
      if (previous.manifest !== null) {
        const [old = 0, oldEpoch = 0] = (previous.manifest.split("/")[0] ?? "").split("-").map(Number);
        await store.collect(prefix, old, oldEpoch);
      }
      await store.collectPacks(prefix, epoch);
      previous = { epoch, generation, manifest: `${generation}-${epoch}/manifest.json` };
    }
  } catch (error) {
    const { code, message } = asSubstrateError(error);
    if (message !== died && code !== "SUPERSEDED") throw error;
  }
}

const ends = fc.oneof(fc.constant(Infinity), fc.integer({ min: 1, max: 40 }));

it("whatever races and dies, what the head names is whole, and the next epoch leaves no litter", async () => {
  const atelets = fc.array(fc.record({ endsBefore: ends, commits: fc.integer({ min: 1, max: 2 }) }), {
    minLength: 2,
    maxLength: 3,
  });
  await fc.assert(
    fc.asyncProperty(fc.scheduler(), atelets, async (scheduler, lives) => {
      const prefix = prefixOf("a");
      const races = new Races(scheduler, (objects) => missingOf(objects, prefix));
      const before = await world.commit(world.over(races.objects), prefix, [1, 1], pages);
      await world.commit(world.over(races.objects), prefix, [2, 1], changed(pages, 0), [before]);
      const racing = lives.map(({ endsBefore, commits }, i) => live(races.process(endsBefore), i + 1, commits));
      await scheduler.waitFor(Promise.all(racing));
      expect([...races.violations]).toEqual([]);
      await live(world.over(races.objects), 9, 2);
      expect(missingOf(races.objects.objects, prefix)).toEqual([]);
      expect(litter(races.objects.objects)).toEqual([]);
    }),
    { numRuns: 25 },
  );
});

it("whatever races and dies, nobody loses packs of a Snapshot that is deleted, and in the end nothing is left", async () => {
  const golden = prefixOf("golden");
  const user = prefixOf("a");
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      ends,
      fc.array(ends, { minLength: 1, maxLength: 3 }),
      async (scheduler, userEnds, sweeps) => {
        const races = new Races(scheduler, (objects) => missingOf(objects, user));
        const base = await world.commit(world.over(races.objects), golden, [1, 1], pages);
        const upload = async (): Promise<void> => {
          const store = races.process(userEnds);
          try {
            const one = await world.commit(store, user, [1, 1], changed(pages, 1), [base]);
            await world.commit(store, user, [2, 1], changed(pages, 2), [one, base]);
            await store.collect(user, 1, 1);
            await store.collectPacks(user, 1);
          } catch (error) {
            const { code, message } = asSubstrateError(error);
            if (message !== died && code !== "STORE_UNAVAILABLE") throw error;
          }
        };
        const remove = async (): Promise<void> => {
          // marks count as old at once
          for (const endsBefore of sweeps) {
            await races
              .process(endsBefore, 0)
              .deletePrefix(golden)
              .catch((error: unknown) => {
                if (asSubstrateError(error).message !== died) throw error;
              });
          }
        };
        await scheduler.waitFor(Promise.all([upload(), remove()]));
        expect([...races.violations]).toEqual([]);
        const store = world.over(races.objects, 0);
        const head = await store.head(user);
        if (head !== undefined && head.manifest !== null) await world.fetch(store, user, head.manifest);
        await store.deletePrefix(golden);
        if (head !== undefined && head.manifest !== null) await world.fetch(store, user, head.manifest);
        await store.deletePrefix(user);
        expect(await store.deletePrefix(golden)).toBe("removed");
        expect([...races.objects.objects.keys()]).toEqual([]);
      },
    ),
    { numRuns: 40 },
  );
});

/** One process whose call is held up, once, until something else has happened. */
function heldUp(objects: MemoryStore, call: string, key: string, until: () => Promise<void>): ObjectSnapshotStore {
  let met = false;
  const before = async (called: string, on: string): Promise<void> => {
    if (met || called !== call || !on.startsWith(key)) return;
    met = true;
    await until();
  };
  return world.over(new MemoryStore(before, objects.objects), 0);
}

it("a collection that began before a higher epoch's claim leaves what that one is uploading", async () => {
  const objects = new MemoryStore();
  const prefix = prefixOf("a");
  const store = world.over(objects);
  const one = await world.commit(store, prefix, [1, 1], pages);
  const collected = Promise.withResolvers<undefined>();
  const packed = Promise.withResolvers<undefined>();
  const next = heldUp(objects, "put", "c/n/a/2-2/manifest.json", async () => {
    packed.resolve(undefined);
    await collected.promise;
  });
  let upload: Promise<unknown> = Promise.resolve();
  const slow = heldUp(objects, "list", "c/n/a/", async () => {
    await store.claim(prefix, 2);
    upload = world.commit(next, prefix, [2, 2], changed(pages, 1), [one]);
    await packed.promise;
  });
  await slow.collectPacks(prefix, 1);
  collected.resolve(undefined);
  await upload;
  expect(missingOf(objects.objects, prefix)).toEqual([]);
});

it("an upload that begins while a Snapshot is removed shares nothing with it", async () => {
  const objects = new MemoryStore();
  const [golden, user] = [prefixOf("golden"), prefixOf("a")];
  const base = await world.commit(world.over(objects), golden, [1, 1], pages);
  const removal = heldUp(objects, "delete", "c/n/golden/", async () => {
    await world.commit(world.over(objects), user, [1, 1], pages, [base]);
  });
  await removal.deletePrefix(golden);
  expect(missingOf(objects.objects, user)).toEqual([]);
});

it("a mark that is removed as old while its upload ends is put back", async () => {
  const objects = new MemoryStore();
  const [golden, user] = [prefixOf("golden"), prefixOf("a")];
  const base = await world.commit(world.over(objects), golden, [1, 1], pages);
  const [packed, goOn] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
  const slow = heldUp(objects, "put", "c/n/a/1-1/manifest.json", async () => {
    packed.resolve(undefined);
    await goOn.promise;
  });
  const upload = world.commit(slow, user, [1, 1], pages, [base]);
  await packed.promise;
  const removal = heldUp(objects, "delete", "c/n/golden/users/a", async () => {
    goOn.resolve(undefined);
    await upload;
  });
  expect(await removal.deletePrefix(golden)).toBe("waiting");
  expect(objects.objects.has("c/n/golden/users/a")).toBe(true);
  expect(missingOf(objects.objects, user)).toEqual([]);
});
