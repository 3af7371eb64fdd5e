import { describe, expect, it } from "vitest";
import { untilDone } from "./until-done.ts";

describe("untilDone", () => {
  it("regression: the operator's API was registered by one try, and a failure stood until the next start", async () => {
    const failures = ["no answer", "no answer", "denied"];
    const told: string[] = [];
    const work = (): Promise<void> => {
      const failure = failures.shift();
      return failure === undefined ? Promise.resolve() : Promise.reject(new Error(failure));
    };
    const { signal } = new AbortController();
    await untilDone(work, { signal, pauseMs: 1, onFailure: (message) => told.push(message) });
    expect(failures).toEqual([]);
    expect(told).toEqual(["no answer", "denied"]);
  });

  it("is given up in the middle of its pause, and says nothing of it", async () => {
    const stop = new AbortController();
    const told: string[] = [];
    await untilDone(() => Promise.reject(new Error("no answer")), {
      signal: stop.signal,
      pauseMs: 60_000,
      onFailure: (message) => {
        told.push(message);
        stop.abort();
      },
    });
    expect(told).toEqual(["no answer"]);
  });
});
