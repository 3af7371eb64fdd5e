import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Outcome, type ReconcileResult, ReconcileQueue, TerminalError } from "./queue.ts";

interface Harness {
  queue: ReconcileQueue;
  runs: string[];
  outcomes: Outcome[];
}

function harness(
  reconcile: (key: string, run: number) => Promise<ReconcileResult>,
  options: { concurrency?: number; random?: () => number } = {},
): Harness {
  const runs: string[] = [];
  const outcomes: Outcome[] = [];
  const queue = new ReconcileQueue({
    concurrency: options.concurrency ?? 4,
    random: options.random ?? ((): number => 1),
    baseDelayMs: 100,
    maxDelayMs: 1_000,
    reconcile: (key) => {
      runs.push(key);
      return reconcile(key, runs.length);
    },
    observer: { finished: (_key, outcome) => outcomes.push(outcome) },
  });
  queue.start();
  return { queue, runs, outcomes };
}

const done = (): Promise<ReconcileResult> => Promise.resolve({});

describe("ReconcileQueue", () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it("merges adds of a key that waits", async () => {
    const { queue, runs } = harness(done);
    await queue.stop();
    queue.add("a");
    queue.add("a");
    expect(queue.depth).toBe(1);
    queue.start();
    await vi.advanceTimersByTimeAsync(0);
    expect(runs).toEqual(["a"]);
  });

  it("never runs a key twice at once, and runs it once more when it was added meanwhile", async () => {
    let release: () => void = () => undefined;
    const { queue, runs } = harness((_key, run) =>
      run === 1
        ? new Promise(
            (resolve) =>
              (release = (): void => {
                resolve({});
              }),
          )
        : done(),
    );
    queue.add("a");
    queue.add("a");
    queue.add("a");
    await vi.advanceTimersByTimeAsync(0);
    expect(runs).toEqual(["a"]);
    release();
    await vi.advanceTimersByTimeAsync(0);
    expect(runs).toEqual(["a", "a"]);
  });

  it("keeps to its concurrency", async () => {
    const releases: (() => void)[] = [];
    const { queue, runs } = harness(
      () =>
        new Promise((resolve) =>
          releases.push(() => {
            resolve({});
          }),
        ),
      { concurrency: 2 },
    );
    for (const key of ["a", "b", "c"]) queue.add(key);
    expect(runs).toEqual(["a", "b"]);
    expect(queue.depth).toBe(1);
    releases[0]?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(runs).toEqual(["a", "b", "c"]);
  });

  it("backs off exponentially up to the maximum and starts anew after a success", async () => {
    let failing = true;
    const { queue, runs, outcomes } = harness(() => (failing ? Promise.reject(new Error("no")) : done()));
    queue.add("a");
    await vi.advanceTimersByTimeAsync(99);
    expect(runs).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(runs).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(200);
    expect(runs).toHaveLength(3);
    await vi.advanceTimersByTimeAsync(400 + 800 + 1_000 + 1_000);
    expect(runs).toHaveLength(7);
    failing = false;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(outcomes.at(-1)).toBe("done");
    failing = true;
    queue.add("a");
    await vi.advanceTimersByTimeAsync(100);
    expect(runs).toHaveLength(10);
  });

  it("jitters between half and the whole of the delay", async () => {
    const { queue, runs } = harness(() => Promise.reject(new Error("no")), { random: () => 0 });
    queue.add("a");
    await vi.advanceTimersByTimeAsync(49);
    expect(runs).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(runs).toHaveLength(2);
  });

  it("does not retry a terminal error until the key is added again", async () => {
    const { queue, runs, outcomes } = harness(() => Promise.reject(new TerminalError("never")));
    queue.add("a");
    await vi.advanceTimersByTimeAsync(600_000);
    expect(runs).toHaveLength(1);
    expect(outcomes).toEqual(["terminal"]);
    queue.add("a");
    await vi.advanceTimersByTimeAsync(0);
    expect(runs).toHaveLength(2);
  });

  it("requeues after the time asked for, the earliest wins, and an add replaces the timer", async () => {
    const { queue, runs } = harness((_key, run) => Promise.resolve(run === 1 ? { requeueAfterMs: 500 } : {}));
    queue.add("a");
    await vi.advanceTimersByTimeAsync(0);
    queue.addAfter("a", 300);
    queue.addAfter("a", 900);
    await vi.advanceTimersByTimeAsync(300);
    expect(runs).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(runs).toHaveLength(2);
  });

  it("stop waits for what runs and keeps what waits", async () => {
    let release: () => void = () => undefined;
    const { queue, runs } = harness(
      () =>
        new Promise(
          (resolve) =>
            (release = (): void => {
              resolve({});
            }),
        ),
      {
        concurrency: 1,
      },
    );
    queue.add("a");
    queue.add("b");
    let stopped = false;
    const stopping = queue.stop().then(() => (stopped = true));
    await vi.advanceTimersByTimeAsync(0);
    expect(stopped).toBe(false);
    release();
    await stopping;
    expect(runs).toEqual(["a"]);
    expect(queue.depth).toBe(1);
    queue.start();
    expect(runs).toEqual(["a", "b"]);
  });
});
