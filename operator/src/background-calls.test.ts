import { setImmediate as turn } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { describe, expect, it } from "vitest";
import { BackgroundCalls } from "./background-calls.ts";

describe("BackgroundCalls", () => {
  it("runs one call of a key at a time and keeps its value until it is forgotten", async () => {
    const calls = new BackgroundCalls<number>();
    let end: (value: number) => void = () => undefined;
    let ended = 0;
    const begin = (): void => {
      calls.start(
        "a",
        () => new Promise((resolve) => (end = resolve)),
        () => (ended += 1),
      );
    };
    begin();
    begin();
    expect(calls.of("a")).toEqual({ kind: "running" });
    calls.forget("a");
    expect(calls.of("a")).toEqual({ kind: "running" });
    end(7);
    await turn();
    expect(calls.of("a")).toEqual({ kind: "done", value: 7 });
    expect(ended).toBe(1);
    calls.forget("a");
    expect(calls.of("a")).toBeUndefined();
  });

  it("counts failures in a row and rests longer after each", async () => {
    const calls = new BackgroundCalls<number>();
    const restsMs: number[] = [];
    for (let failures = 1; failures <= 3; failures++) {
      calls.start(
        "a",
        () => Promise.reject(new SubstrateError("STORE_UNAVAILABLE", "no")),
        () => undefined,
      );
      await turn();
      const outcome = calls.of("a");
      if (outcome?.kind !== "failed") throw new Error("it has not failed");
      expect(outcome).toMatchObject({ failures, error: { code: "STORE_UNAVAILABLE" } });
      restsMs.push(outcome.retryAtMs - performance.now());
    }
    const [first = 0, second = 0, third = 0] = restsMs;
    expect(second).toBeGreaterThan(first);
    expect(third).toBeGreaterThan(second);
  });

  it("is cancelled by its signal", async () => {
    const calls = new BackgroundCalls<number>();
    const untilAborted = (signal: AbortSignal): Promise<number> =>
      new Promise((_, reject) => {
        signal.addEventListener("abort", () => {
          reject(new SubstrateError("TIMEOUT", "cancelled"));
        });
      });
    calls.start("a", untilAborted, () => undefined);
    calls.cancel("a");
    await turn();
    expect(calls.of("a")).toMatchObject({ kind: "failed", error: { code: "TIMEOUT" } });
  });
});
