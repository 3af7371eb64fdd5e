import { expect, it } from "vitest";
import { Retries } from "./retries.ts";

const passing = { errorType: "TRANSIENT" as const };

/** A request that always fails: the pauses between its tries. */
async function fail(retries: Retries, failed: Parameters<Retries["refreshRetryTokenForRetry"]>[1]): Promise<number[]> {
  const pausesMs: number[] = [];
  let token = await retries.acquireInitialRetryToken();
  for (;;) {
    try {
      token = await retries.refreshRetryTokenForRetry(token, failed);
      pausesMs.push(token.getRetryDelay());
    } catch {
      return pausesMs;
    }
  }
}

const coded = (code: string) => ({
  errorType: "CLIENT_ERROR" as const,
  error: Object.assign(new Error(code), { code }),
});

it("repeats a few times, after pauses that grow and differ", async () => {
  expect(await fail(new Retries(100, () => 1), passing)).toEqual([100, 300, 900, 2700]);
  expect(await fail(new Retries(100, () => 0), passing)).toEqual([50, 150, 450, 1350]);
  expect(await fail(new Retries(100, () => 1), { errorType: "THROTTLING" })).toEqual([500, 1500, 4500, 13500]);
  const retryAfterHint = new Date(Date.now() + 3_600_000);
  expect(await fail(new Retries(100, () => 1), { ...passing, retryAfterHint })).toEqual([
    20_000, 20_000, 20_000, 20_000,
  ]);
});

it("repeats what may pass: bytes that were changed on their way, but no refusal; what is slow only once", async () => {
  expect(await fail(new Retries(100), coded("BadDigest"))).toHaveLength(4);
  expect(await fail(new Retries(100), coded("ShortBody"))).toHaveLength(4);
  expect(await fail(new Retries(100), coded("AccessDenied"))).toEqual([]);
  expect(await fail(new Retries(100), { errorType: "SERVER_ERROR" })).toEqual([]);
  expect(await fail(new Retries(100), coded("TooSlow"))).toHaveLength(1);
});

it("repeats nothing any more once many have failed, until requests succeed again", async () => {
  const retries = new Retries(100);
  let repeated = 0;
  for (let i = 0; i < 100; i += 1) repeated += (await fail(retries, passing)).length;
  expect(repeated).toBe(40);
  for (let i = 0; i < 3; i += 1) retries.recordSuccess(await retries.acquireInitialRetryToken());
  expect(await fail(retries, passing)).toHaveLength(3);
});

it("never runs out with a store that fails every second request", async () => {
  const retries = new Retries(100);
  for (let i = 0; i < 1_000; i += 1) {
    const token = await retries.acquireInitialRetryToken();
    retries.recordSuccess(await retries.refreshRetryTokenForRetry(token, passing));
  }
});
