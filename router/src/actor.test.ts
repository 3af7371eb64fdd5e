import { SubstrateError } from "@substrate/lib/errors.ts";
import { type OpenRequests, type Route, type RouteState } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Actor, type FailedTry } from "./actor.ts";
import { HoldBudget } from "./budget.ts";
import { Holding } from "./holding.ts";
import { Ticket } from "./ticket.ts";

const identity = { uid: "uid-1", namespace: "default", name: "counter" };

function route(state: RouteState, fields: Partial<Route> = {}): Route {
  const endpoints =
    state === "ROUTE_STATE_RUNNING" || state === "ROUTE_STATE_GATED"
      ? [{ portName: "http", containerPort: 8080, address: "127.0.0.1", port: 40_000 }]
      : [];
  return {
    actor: { ...identity, namespaceUid: "ns" },
    epoch: 1n,
    state,
    gateId: 0n,
    endpoints,
    wakeTimeoutMs: 30_000n,
    message: "",
    retryAfterMs: 0n,
    reason: "",
    ...fields,
  };
}

/** An actor whose wakes and reports the test plays. */
class World {
  readonly budget: HoldBudget;
  readonly reports: OpenRequests[] = [];
  readonly wakes: { at: Holding | undefined; answer: PromiseWithResolvers<Route | undefined> }[] = [];
  readonly actor: Actor;
  attached = true;
  mostWakesAtOnce = 0;
  #wakesInFlight = 0;

  constructor(maxHeld = 1000, maxPerActor = 1000) {
    this.budget = new HoldBudget(maxHeld, maxPerActor);
    this.actor = new Actor(identity, {
      budget: this.budget,
      defaultWakeTimeoutMs: 30_000,
      attaching: () => undefined,
      wake: (_actor, at) => {
        const answer = Promise.withResolvers<Route | undefined>();
        this.wakes.push({ at, answer });
        this.#wakesInFlight += 1;
        this.mostWakesAtOnce = Math.max(this.mostWakesAtOnce, this.#wakesInFlight);
        return answer.promise.finally(() => {
          this.#wakesInFlight -= 1;
        });
      },
    });
  }

  holding(nodeName = "node-1"): Holding {
    const known = this.actor.holding(nodeName);
    if (known !== undefined) return known;
    const peer = {
      nodeName,
      report: (counts: OpenRequests) => {
        if (this.attached) this.reports.push(counts);
        return this.attached;
      },
    };
    const holding = new Holding(peer, identity.uid, { headersTimeoutMs: 1_000, connectTimeoutMs: 1_000 });
    this.actor.addHolding(holding);
    return holding;
  }

  show(state: RouteState, fields: Partial<Route> = {}, nodeName = "node-1"): void {
    this.actor.applyRoute(this.holding(nodeName), route(state, fields));
  }

  request(after?: FailedTry): { outcome: Promise<Ticket | Error>; abort: AbortController } {
    const abort = new AbortController();
    const admission = after === undefined ? this.actor.admit(undefined) : undefined;
    if (admission !== undefined) return { outcome: Promise.resolve(admission), abort };
    const held = this.actor.hold({
      port: undefined,
      arrivedAt: performance.now(),
      signal: abort.signal,
      ...(after === undefined ? {} : { after }),
    });
    return { outcome: held.catch((error: unknown) => error as Error), abort };
  }

  get lastReport(): OpenRequests | undefined {
    return this.reports.at(-1);
  }
}

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

describe("an actor's requests", () => {
  test("many requests to a sleeping actor make one wake, and all go when it runs", async () => {
    const world = new World();
    world.show("ROUTE_STATE_ASLEEP");
    const requests = Array.from({ length: 50 }, () => world.request());
    expect(world.wakes).toHaveLength(1);
    world.wakes[0]?.answer.resolve(route("ROUTE_STATE_RUNNING"));
    const outcomes = await Promise.all(requests.map(({ outcome }) => outcome));
    expect(outcomes.every((outcome) => outcome instanceof Ticket)).toBe(true);
    expect(world.actor.openCount).toBe(50);
    expect(world.budget.held).toBe(0);
    expect(world.wakes).toHaveLength(1);
  });

  test("a gate is acknowledged at once with the count of that moment, and every change after it is told", async () => {
    const world = new World();
    world.show("ROUTE_STATE_RUNNING");
    const first = (await world.request().outcome) as Ticket;
    const second = (await world.request().outcome) as Ticket;
    world.show("ROUTE_STATE_GATED", { gateId: 7n });
    expect(world.lastReport).toEqual({ actorUid: "uid-1", open: 2, gateId: 7n });
    const late = world.request();
    first.close();
    expect(world.lastReport).toEqual({ actorUid: "uid-1", open: 1, gateId: 7n });
    second.close();
    expect(world.lastReport).toEqual({ actorUid: "uid-1", open: 0, gateId: 7n });
    expect(world.wakes).toHaveLength(0);
    world.show("ROUTE_STATE_ASLEEP");
    expect(world.wakes).toHaveLength(1);
    world.show("ROUTE_STATE_RUNNING");
    expect(await late.outcome).toBeInstanceOf(Ticket);
  });

  test("a wake's answer that is older than the stream's word does not open a gate", async () => {
    const world = new World();
    world.show("ROUTE_STATE_ASLEEP");
    const request = world.request();
    world.show("ROUTE_STATE_RUNNING");
    expect(await request.outcome).toBeInstanceOf(Ticket);
    world.show("ROUTE_STATE_GATED", { gateId: 3n });
    world.wakes[0]?.answer.resolve(route("ROUTE_STATE_RUNNING"));
    await vi.advanceTimersByTimeAsync(1);
    expect(world.actor.admit(undefined)).toBeUndefined();
  });

  test("counts are told on 0 → 1 and 1 → 0, at most every 100 ms", async () => {
    const world = new World();
    world.show("ROUTE_STATE_RUNNING");
    for (let i = 0; i < 100; i += 1) ((await world.request().outcome) as Ticket).close();
    expect(world.reports.map(({ open }) => open)).toEqual([1]);
    await vi.advanceTimersByTimeAsync(100);
    expect(world.reports.map(({ open }) => open)).toEqual([1, 0]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(world.reports).toHaveLength(2);
  });

  test("the wake timeout ends the request with a 503 that says when to come again; the wake goes on", async () => {
    const world = new World();
    world.show("ROUTE_STATE_ASLEEP", { wakeTimeoutMs: 2_000n });
    const request = world.request();
    await vi.advanceTimersByTimeAsync(2_000);
    const error = (await request.outcome) as SubstrateError;
    expect(error).toMatchObject({ code: "NOT_READY", retryAfterMs: 5_000 });
    expect(error.message).toContain("default/counter was not ready within 2 s");
    const next = world.request();
    expect(world.wakes).toHaveLength(1);
    world.wakes[0]?.answer.resolve(route("ROUTE_STATE_RUNNING"));
    expect(await next.outcome).toBeInstanceOf(Ticket);
  });

  test("a store that was away a while ago is not the reason of a wake that waits for room now", async () => {
    const world = new World();
    world.show("ROUTE_STATE_ASLEEP", { wakeTimeoutMs: 2_000n });
    const first = world.request();
    world.wakes[0]?.answer.reject(new SubstrateError("STORE_UNAVAILABLE", "the store is away"));
    await vi.advanceTimersByTimeAsync(1);
    first.abort.abort();
    await vi.advanceTimersByTimeAsync(60_000);
    const second = world.request();
    await vi.advanceTimersByTimeAsync(2_000);
    const error = (await second.outcome) as SubstrateError;
    expect(error).toMatchObject({ code: "NOT_READY" });
    expect(error.message).not.toContain("store");
  });

  test("what kept the wake from ending is the reason; a slow wake call is still a 503", async () => {
    const world = new World();
    world.show("ROUTE_STATE_ASLEEP", { wakeTimeoutMs: 50n });
    const slow = world.request();
    world.wakes[0]?.answer.reject(new SubstrateError("TIMEOUT", "no answer in time"));
    await vi.advanceTimersByTimeAsync(50);
    expect(await slow.outcome).toMatchObject({ code: "NOT_READY" });
    const crowded = world.request();
    await vi.advanceTimersByTimeAsync(50);
    world.wakes[1]?.answer.reject(new SubstrateError("OPERATION_IN_PROGRESS", "a suspend is under way"));
    await vi.advanceTimersByTimeAsync(50);
    const error = (await crowded.outcome) as SubstrateError;
    expect(error.message).toMatch(/a suspend is under way|no answer in time/);
  });

  test("a client that leaves frees its place", async () => {
    const world = new World(1, 1);
    world.show("ROUTE_STATE_ASLEEP");
    const first = world.request();
    expect(await world.request().outcome).toMatchObject({ code: "TOO_MANY_HELD" });
    first.abort.abort(new Error("gone"));
    expect(await first.outcome).toMatchObject({ message: "gone" });
    expect(world.budget.held).toBe(0);
    const second = world.request();
    world.show("ROUTE_STATE_RUNNING");
    expect(await second.outcome).toBeInstanceOf(Ticket);
  });

  test("HELD and FAILING refuse new and held requests", async () => {
    const world = new World();
    world.show("ROUTE_STATE_ASLEEP");
    const held = world.request();
    world.show("ROUTE_STATE_HELD");
    expect(await held.outcome).toMatchObject({ code: "HELD" });
    expect(await world.request().outcome).toMatchObject({ code: "HELD" });
    world.show("ROUTE_STATE_FAILING", { message: "crashes at its start", retryAfterMs: 8_000n });
    const error = (await world.request().outcome) as SubstrateError;
    expect(error.retryAfterMs).toBe(8_000);
    expect(error.message).toContain("crashes at its start");
    world.show("ROUTE_STATE_FAILING", { message: "is lost", reason: "SNAPSHOT_DAMAGED" });
    const damaged = (await world.request().outcome) as SubstrateError;
    expect(damaged).toMatchObject({ code: "SNAPSHOT_DAMAGED", retryAfterMs: undefined });
  });

  test("MOVED at the node sends the wake to the operator", async () => {
    const world = new World();
    world.show("ROUTE_STATE_ASLEEP");
    const request = world.request();
    world.wakes[0]?.answer.reject(new SubstrateError("MOVED", "epoch 1 was released"));
    await vi.advanceTimersByTimeAsync(0);
    expect(world.wakes).toHaveLength(2);
    expect(world.wakes[1]?.at).toBeUndefined();
    world.show("ROUTE_STATE_RUNNING", { epoch: 2n }, "node-2");
    world.wakes[1]?.answer.resolve(undefined);
    expect(await request.outcome).toMatchObject({ holding: { peer: { nodeName: "node-2" } } });
  });

  test("a wake that fails for good is told to all who wait; one that may pass is tried again", async () => {
    const world = new World();
    world.show("ROUTE_STATE_ASLEEP");
    const request = world.request();
    world.wakes[0]?.answer.reject(new SubstrateError("OPERATION_IN_PROGRESS", "a suspend is under way"));
    await vi.advanceTimersByTimeAsync(2_000);
    expect(world.wakes).toHaveLength(2);
    world.wakes[1]?.answer.reject(new SubstrateError("IMAGE_UNAVAILABLE", "the registry refuses"));
    expect(await request.outcome).toMatchObject({ code: "IMAGE_UNAVAILABLE", retryAfterMs: 5_000 });
  });

  test("a refused connection waits for a newer Route, or tries the same one a little later", async () => {
    const world = new World();
    world.show("ROUTE_STATE_RUNNING");
    const ticket = (await world.request().outcome) as Ticket;
    ticket.close();
    const after = { holding: ticket.holding, version: ticket.version, retryAt: performance.now() + 500 };
    const first = world.request(after);
    const second = world.request({ ...after, retryAt: performance.now() + 20 });
    await vi.advanceTimersByTimeAsync(30);
    expect(await second.outcome).toBeInstanceOf(Ticket);
    expect(world.actor.heldCount).toBe(1);
    world.show("ROUTE_STATE_RUNNING");
    expect(await first.outcome).toBeInstanceOf(Ticket);
  });

  test("a lost stream holds requests; what is open is told to the next stream, old gates mean nothing to it", async () => {
    const world = new World();
    world.show("ROUTE_STATE_GATED", { gateId: 9n });
    world.show("ROUTE_STATE_RUNNING");
    const open = (await world.request().outcome) as Ticket;
    world.actor.loseRoute(world.holding());
    const held = world.request();
    expect(world.actor.heldCount).toBe(1);
    world.holding().announce();
    expect(world.lastReport).toEqual({ actorUid: "uid-1", open: 1, gateId: 0n });
    world.show("ROUTE_STATE_RUNNING");
    expect(await held.outcome).toBeInstanceOf(Ticket);
    open.close();
  });
});

type Step = "arrive" | "end" | "leave" | "run" | "gate" | "sleep" | "lose" | "wake ok" | "wake fails" | "time";
const steps: Step[] = ["arrive", "end", "leave", "run", "gate", "sleep", "lose", "wake ok", "wake fails", "time"];

test("no interleaving starts a request behind an acknowledged gate, wakes twice at once or forgets a request", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom(...steps), { maxLength: 60 }), async (sequence) => {
      const world = new World();
      const open: Ticket[] = [];
      const waiting = new Set<AbortController>();
      const problems: string[] = [];
      let gate = 0n;
      let closed = false;
      const start = (ticket: Ticket): void => {
        if (closed) problems.push("a request started behind a closed gate");
        open.push(ticket);
      };
      const settle = async (): Promise<void> => {
        await vi.advanceTimersByTimeAsync(0);
        if (closed) {
          const counted = world.lastReport;
          if (counted?.gateId !== gate || counted.open !== open.length)
            problems.push("the acknowledged count is wrong");
        }
        if (world.mostWakesAtOnce > 1) problems.push("two wakes at once");
        if (world.budget.held !== waiting.size) problems.push("held requests and budget differ");
      };
      world.show("ROUTE_STATE_ASLEEP");
      for (const step of sequence) {
        if (step === "arrive") {
          const { outcome, abort } = world.request();
          waiting.add(abort);
          void outcome.then((result) => {
            waiting.delete(abort);
            if (result instanceof Ticket) start(result);
          });
        } else if (step === "end") open.pop()?.close();
        else if (step === "leave") [...waiting][0]?.abort(new Error("gone"));
        else if (step === "run") {
          closed = false;
          world.show("ROUTE_STATE_RUNNING");
        } else if (step === "gate") {
          gate += 1n;
          closed = true;
          world.show("ROUTE_STATE_GATED", { gateId: gate });
        } else if (step === "sleep") {
          closed = false;
          for (const ticket of open.splice(0)) ticket.close();
          world.show("ROUTE_STATE_ASLEEP");
        } else if (step === "lose") {
          closed = false;
          world.actor.loseRoute(world.holding());
        } else if (step === "wake ok") world.wakes.at(-1)?.answer.resolve(route("ROUTE_STATE_RUNNING"));
        else if (step === "wake fails") world.wakes.at(-1)?.answer.reject(new SubstrateError("TIMEOUT", "slow"));
        else await vi.advanceTimersByTimeAsync(50);
        await settle();
      }
      closed = false;
      world.show("ROUTE_STATE_RUNNING");
      await vi.advanceTimersByTimeAsync(0);
      if (waiting.size > 0) problems.push("a request waits though the actor runs");
      for (const ticket of open) ticket.close();
      if (world.actor.openCount !== 0) problems.push("the open count does not return to zero");
      world.actor.removeHolding(world.holding());
      expect(problems).toEqual([]);
    }),
    { numRuns: 300 },
  );
});
