import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DIRTIED_MIB, MemoryRig, SLOW_BYTES_PER_SECOND } from "./memory.ts";

const MIB = 2 ** 20;
const four = ["four-1", "four-2", "four-3", "four-4"];

// 500 MiB held, 64 MiB dirtied in each cycle, a limit of 600 MiB; the long form is in memory.full.ts
describe("no actor fails its own snapshot", { timeout: 180_000 }, () => {
  let rig: MemoryRig | undefined;
  const started = (): MemoryRig => {
    if (rig === undefined) throw new Error("the cluster did not start");
    return rig;
  };
  beforeAll(async () => {
    rig = await MemoryRig.start();
    await rig.gluttons("tight", four);
  }, 180_000);
  afterAll(async () => {
    await rig?.stop();
  }, 60_000);

  it("alone and four at once, on a fast disk; nothing is written out that nobody needs", async () => {
    const own = started();
    const digest = await own.ask("four-1", "/digest", "GET");
    expect((await own.cycle(four.slice(1), 1)).failures).toEqual([]);
    const flushes = await own.metric("substrate_ledger_forced_flushes_total");
    await own.product.suspend("four-1", "Async");
    // R3, R11: what was lent for is dirty still, as nothing has asked for its memory and nobody has synced it
    const look = await own.look();
    expect(await own.metric("substrate_ledger_forced_flushes_total")).toBe(flushes);
    expect(look.unwritten.dirtyBytes).toBeGreaterThan(100 * MIB);
    expect(look.followed.flatMap(({ paths }) => paths).some((path) => path.endsWith("/pages.img"))).toBe(true);
    expect(await own.ask("four-1", "/digest", "GET")).toBe(digest);
    expect(await own.cycle(["four-1"], 2)).toMatchObject({ suspends: 2, failures: [] });
    expect(await own.cycle(four, 1)).toMatchObject({ suspends: 4, failures: [] });
  });

  it("on a slow disk, with what is lent and without", async ({ skip }) => {
    const own = started();
    skip(own.noSlowDisk !== undefined, own.noSlowDisk);
    own.disk.slow(SLOW_BYTES_PER_SECOND);
    try {
      expect(await own.cycle(four, 1)).toMatchObject({ suspends: 4, failures: [] });
      await own.ask("four-1", `/dirty?mib=${DIRTIED_MIB}`);
      const digest = await own.ask("four-1", "/digest", "GET");
      await own.fillUp("filler", 100 * MIB);
      const refused = await own.metric('substrate_ledger_loans_total{outcome="refused"}');
      await own.product.suspend("four-1", "Async");
      expect(await own.metric('substrate_ledger_loans_total{outcome="refused"}')).toBe(refused + 1);
      expect(await own.ask("four-1", "/digest", "GET")).toBe(digest);
    } finally {
      own.disk.slow(undefined);
    }
  });
});
