import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { type AteletLink } from "./atelet-link.ts";
import { restAfterMs, Trials } from "./trials.ts";

const trial = {
  program: { templateUid: "t1", templateName: "t", revision: "r1" } as Program,
  environment: () => Promise.resolve({ variables: [], digest: "" }),
  golden: undefined,
};

/** Trials with a clock of their own on a node where every run fails. */
function failing(code: "IMAGE_UNAVAILABLE" | "INVALID") {
  const clock = { nowMs: 1_000_000, tries: 0 };
  const link = {
    call: () => {
      clock.tries += 1;
      return Promise.reject(new SubstrateError(code, "no"));
    },
  } as unknown as AteletLink;
  const log = createLogger("test", "error");
  log.silent = true;
  const trials = new Trials({ log, monotonicMs: () => clock.nowMs });
  const look = async (key = "t1/r1/1") => {
    const outcome = trials.ensure(key, link, trial, () => undefined);
    await turn();
    return outcome;
  };
  return { clock, look, trials };
}

describe("Trials", () => {
  it("regression: looking at a failure again started the next try", async () => {
    const { clock, look } = failing("IMAGE_UNAVAILABLE");
    expect(await look()).toMatchObject({ kind: "running" });
    for (let i = 0; i < 5; i++) {
      expect(await look()).toMatchObject({ kind: "failed", failures: 1, rest: { leftMs: 5_000 } });
    }
    expect(clock.tries).toBe(1);
    clock.nowMs = 1_005_000;
    expect(await look()).toMatchObject({ kind: "running" });
    expect(await look()).toMatchObject({ kind: "failed", failures: 2, rest: { leftMs: 10_000 } });
    expect(clock.tries).toBe(2);
  });

  it("lets what only a change can mend rest, and tries the change at once", async () => {
    const { clock, look } = failing("INVALID");
    await look();
    clock.nowMs += 24 * 3_600_000;
    expect(await look()).toMatchObject({ kind: "failed", rest: undefined });
    expect(clock.tries).toBe(1);
    await look("t1/r2/2");
    expect(clock.tries).toBe(2);
  });

  it("drops the end of a trial that was forgotten meanwhile", async () => {
    const { look, trials } = failing("IMAGE_UNAVAILABLE");
    const running = look();
    trials.forgetTemplate("t1");
    await running;
    expect(trials.ensure("t1/r1/1", undefined, trial, () => undefined)).toBeUndefined();
  });
});

describe("restAfterMs", () => {
  it("doubles up to five minutes for what may pass, ten for the program's own faults", () => {
    expect([1, 2, 3, 7, 50].map((failures) => restAfterMs("NO_ROOM", failures))).toEqual([
      5_000, 10_000, 20_000, 300_000, 300_000,
    ]);
    expect([1, 2, 6, 50].map((failures) => restAfterMs("PROGRAM_EXITED", failures))).toEqual([
      30_000, 60_000, 600_000, 600_000,
    ]);
    expect(restAfterMs("INVALID", 1)).toBeUndefined();
    expect([1, 9].map((failures) => restAfterMs("SECRET_MISSING", failures))).toEqual([10_000, 10_000]);
  });
});
