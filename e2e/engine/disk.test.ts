import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { actors, snapshots } from "@substrate/crds/index.ts";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../support/poll.ts";
import { BIG_MIB, DiskRig, HELD_MIB, VOLUME_MIB } from "./disk-rig.ts";

const MIB = 2 ** 20;
const evictions = 'substrate_disk_evictions_total{kind="generation",reason="floor"}';
const byQuota = evictions.replace("floor", "quota");

describe("a node's disk", { timeout: 120_000 }, () => {
  let rig: DiskRig | undefined;
  const own = (): DiskRig => {
    if (rig === undefined) throw new Error("the cluster did not start");
    return rig;
  };
  beforeAll(async () => {
    rig = await DiskRig.start();
  }, 120_000);
  afterEach(() => {
    rig?.heal();
  });
  afterAll(async () => {
    await rig?.stop();
  }, 60_000);

  const generationsBelow = (mib: number): Promise<void> =>
    eventually(
      async () => {
        expect((await own().look()).local.generation).toBeLessThan(mib * MIB);
      },
      { deadlineMs: 20_000, everyMs: 250 },
    );

  const logged = (what: string | RegExp): Promise<void> =>
    eventually(
      () => {
        expect(readFileSync(own().cluster.logFile("atelet"), "utf8")).toMatch(what);
        return Promise.resolve();
      },
      { deadlineMs: 20_000, everyMs: 100 },
    );

  it("R24: stored copies go first, what is not stored is stored at once, what does not fit is refused", async () => {
    const { product } = own();
    const digests = { old: await own().actor("old"), pending: await own().actor("pending"), last: "" };
    await product.suspend("old", "Sync");
    await product.suspend("pending", "Async");
    const { local } = await own().look();
    expect(local.generation).toBeGreaterThan(2 * HELD_MIB * MIB);
    expect(local.generation).toBeLessThan(2 * (HELD_MIB + 40) * MIB);
    digests.last = await own().actor("last");

    // the copy that is in the store goes, and the one that is nowhere else after it was stored
    await own().leave(10);
    await product.suspend("last", "Async");
    await own().leave(10);
    await eventually(
      async () => {
        expect(await own().metric(evictions)).toBeGreaterThanOrEqual(1);
      },
      { deadlineMs: 10_000 },
    );
    own().heal();
    expect(await own().digest("old")).toBe(digests.old);
    expect(await own().digest("pending")).toBe(digests.pending);

    // nothing helps: the store is away, and nothing on the node is stored
    await product.suspend("pending", "Async");
    own().fail("EIO", "/store/.*");
    await own().leave(-20);
    await expect(product.suspend("old", "Async")).rejects.toThrow(/NO_ROOM|--disk-floor/);
    expect(await own().digest("old")).toBe(digests.old);
    expect((await own().look()).tight).toContain("--disk-floor");
    await eventually(
      async () => {
        expect(await own().events("DiskTight")).toEqual([
          expect.stringMatching(/^node \S+: the disk of .*--disk-floor/),
        ]);
      },
      { deadlineMs: 10_000 },
    );
    own().heal();
    await product.suspend("old", "Async");
    for (const name of ["old", "pending", "last"] as const) expect(await own().digest(name)).toBe(digests[name]);
    await own().nothingHeld();
  });

  it("whatever cannot be written: no generation is lost, and all goes on when it can", async () => {
    const { product } = own();
    const digest = await own().actor("victim");
    await product.suspend("victim", "Sync");
    const faults = [
      ["EROFS", "/generations/[0-9]+\\.partial"],
      ["FILL", "/generations/[0-9]+\\.partial/image$"],
      ["ENOSPC", "/generation\\.json\\.tmp$"],
      ["EIO", "/generations/[0-9]+\\.partial$"],
      ["EIO", "/pages\\.table"],
      ["EROFS", "/record\\.json\\.tmp$"],
      ["ENOSPC", "/node/actors/"],
      ["ENOSPC", "/store/"],
    ] as const;
    const outcomes: string[] = [];
    for (const [code, path] of faults) {
      expect(await own().digest("victim"), `before ${code} ${path}`).toBe(digest);
      own().fail(code, path);
      const outcome = await product.suspend("victim", "Async").then(
        () => "slept",
        (error: unknown) => (error instanceof Error ? error.message : String(error)),
      );
      outcomes.push(`${code} ${path}: ${outcome}`);
      // digests are taken after the suspend has ended: on an idle machine, only after the disk would be whole again
      if (path === "/pages\\.table") await logged("the digests of a snapshot could not be taken");
      own().heal();
      expect(await own().digest("victim"), `after ${code} ${path}: ${outcome}`).toBe(digest);
      await product.suspend("victim", "Sync");
    }
    // of what failed it is said what and why
    for (const line of outcomes.filter((one) => !one.endsWith(": slept"))) {
      expect(line).toMatch(/EROFS|ENOSPC|EIO|no space left|read-only|disk/i);
    }
    const slept = outcomes.filter((one) => one.endsWith(": slept")).map((one) => one.slice(0, -": slept".length));
    expect(slept).toEqual(["EIO /pages\\.table", "EROFS /record\\.json\\.tmp$", "ENOSPC /store/"]);
    await logged(/checkpoint.*no space left on device/i);
    await own().nothingHeld();
  });

  it("a layer of a volume that cannot be made: the wake fails, and all is there when it can", async () => {
    const { product } = own();
    const digest = await own().digest("victim");
    for (const code of ["ENOSPC", "EROFS"] as const) {
      await product.suspend("victim", "Sync");
      own().fail(code, "/volumes/data/layers");
      await expect(own().digest("victim")).rejects.toThrow(/answered 50/);
      own().heal();
      expect(await own().digest("victim")).toBe(digest);
      await own().replaceFile("victim");
    }
  });

  it("R24: what all snapshots may take is kept: stored copies go, and what is not stored is stored at once, then", async () => {
    const { product } = own();
    const first = await own().actor("first", "big");
    await product.suspend("first", "Sync");
    await own().actor("second", "big");
    await product.suspend("second", "Async");
    // that of the first, and those of whoever slept before
    const gone = await own().metric(byQuota);
    expect(gone).toBeGreaterThanOrEqual(1);
    expect((await own().look()).local.generation).toBeLessThan(2 * BIG_MIB * MIB);
    expect(await own().digest("first")).toBe(first);
    expect(await own().metric(byQuota)).toBeGreaterThan(gone);
    for (const name of ["first", "second"]) await product.removeActor(name);
  });

  it("a volume above its sizeLimit: it is said where, the actor ends, and goes on from what was saved", async () => {
    const { product } = own();
    const digest = await own().digest("victim");
    await product.suspend("victim", "Sync");
    await own().ask("victim", `/disk?path=/data/more&mib=${VOLUME_MIB}&files=1&kind=random`, "POST");
    const over = /volume data holds 6\d\.\d MiB, more than its sizeLimit of 64\.0 MiB/;
    await expect(product.suspend("victim", "Async")).rejects.toThrow(over);
    const crash = async (): Promise<string | undefined> =>
      (await own().cluster.client.get(actors, "victim", "default"))?.status?.crash?.message;
    await eventually(
      async () => {
        expect(await crash()).toMatch(over);
      },
      { deadlineMs: 10_000 },
    );
    expect(await own().digest("victim")).toBe(digest);
  });

  it("a tag that cannot be written where its fork starts: nothing is left half, and the next start has it", async () => {
    const { product, cluster } = own();
    const digest = await own().digest("victim");
    await product.suspend("victim", "Sync");
    const named = (name: string): { name: string; namespace: string } => ({ name, namespace: "default" });
    await cluster.client.create(snapshots, {
      metadata: named("tagged"),
      spec: { actorRef: { name: "victim" }, tag: "tagged" },
    });
    await eventually(
      async () => {
        const found = await cluster.client.get(snapshots, "tagged", "default");
        expect(found?.status?.storageState).toBe("SNAPSHOT_STORAGE_STATE_COMPLETED");
      },
      { deadlineMs: 20_000 },
    );
    await cluster.client.create(actors, {
      metadata: named("fork"),
      spec: { templateRef: { name: "glutton" }, state: "OnDemand", source: { snapshotRef: { name: "tagged" } } },
    });
    for (const code of ["ENOSPC", "EIO"] as const) {
      own().fail(code, "/origins/[^/]+\\.partial/");
      await eventually(() => expect(own().digest("fork")).rejects.toThrow(new RegExp(`answered 50.*${code}`)), {
        deadlineMs: 20_000,
      });
      own().heal();
      expect(readdirSync(join(cluster.nodeDir, "origins"))).toEqual([]);
    }
    expect(await own().digest("fork")).toBe(digest);
    await product.removeActor("fork");
    await cluster.client.delete(snapshots, "tagged", "default");
  });

  it("a download that cannot be written is tried again, and nothing is held of what was deleted", async () => {
    const { product } = own();
    const digest = await own().digest("victim");
    await product.suspend("victim", "Sync");
    for (const name of ["old", "pending", "last"]) await product.removeActor(name);
    await generationsBelow(HELD_MIB + 10);
    await own().leave(-20);
    await generationsBelow(1);
    own().heal();
    own().fail("ENOSPC", "/generations/[0-9]+\\.partial/");
    await expect(own().digest("victim")).rejects.toThrow(/answered 50[34]/);
    own().heal();
    expect(await own().digest("victim")).toBe(digest);
    await own().replaceFile("victim");
    await product.removeActor("victim");
    await generationsBelow(1);
    await own().nothingHeld();
  });
});
