import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ConnectionsRig, wantedPostgres } from "./connections.ts";

const sleepMs = 240_000;
const everyMs = 2000;

const wanted = await wantedPostgres();
const lacks = "lacks" in wanted ? wanted.lacks : undefined;
const title = `open connections over a long sleep${lacks === undefined ? "" : ` (${lacks})`}`;

describe.skipIf(lacks !== undefined)(title, { timeout: sleepMs + 60_000 }, () => {
  let rig: ConnectionsRig;
  beforeAll(async () => {
    if ("lacks" in wanted) throw new Error(wanted.lacks);
    rig = await ConnectionsRig.start(wanted.file, ["idle", "told"]);
  }, 120_000);
  afterAll(async () => {
    await (rig as ConnectionsRig | undefined)?.stop();
  });

  it("a PostgreSQL session goes on after four minutes, idle and with notifications all the while", async () => {
    const backends = new Map<string, string>();
    for (const actor of ["idle", "told"]) {
      await rig.openSession(actor);
      backends.set(actor, await rig.value(actor, "select pg_backend_pid()"));
    }
    await rig.query("told", "listen news");
    await Promise.all(["idle", "told"].map((actor) => rig.product.suspend(actor, "Async")));
    const sent: string[] = [];
    const untilMs = performance.now() + sleepMs;
    while (performance.now() < untilMs) {
      sent.push(String(sent.length));
      await rig.elsewhere(`notify news, '${sent.length - 1}'`);
      await delay(everyMs);
    }
    // what is sent while it is awake comes after what was sent while it slept, however late that is sent again
    for (const [actor, backend] of backends) expect(await rig.value(actor, "select pg_backend_pid()")).toBe(backend);
    expect(await rig.notified("told")).toEqual(sent);
    const { ms, error } = await rig.query("told", "select 1");
    expect(error).toBe("");
    process.stdout.write(`after ${sleepMs / 1000} s asleep a query took ${ms} ms\n`);
  });
});
