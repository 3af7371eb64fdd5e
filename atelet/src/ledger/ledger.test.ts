import { setImmediate as turn } from "node:timers/promises";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Booking, type LedgerEvent, type Loan, type WarmLoan } from "./contract.ts";
import { MemoryLedger } from "./ledger.ts";

const ledger = (limitBytes = 100, reserveBytes = 10) => new MemoryLedger({ limitBytes, reserveBytes });
const soon = { deadlineMs: 20 };

describe("R1: take lends only what is unbooked and free, return repays exactly that", () => {
  it("refuses a loan that is not free by the pod's numbers, or not unbooked", () => {
    const l = ledger();
    expect(l.take(50, 49)).toBeUndefined();
    expect(l.take(91, 1000)).toBeUndefined();
    expect(l.take(90, 1000)).toBeDefined();
    expect(l.take(1, 1000)).toBeUndefined();
  });

  it("throws on a second return instead of hiding it", () => {
    const l = ledger();
    const loan = l.take(40, 100);
    loan?.return();
    expect(() => loan?.return()).toThrow(/twice/);
    expect(l.state().lentBytes).toBe(0);
  });
});

describe("R2: a placement waits while loans stand in its way", () => {
  it("is granted when the loan comes back", async () => {
    const l = ledger();
    const loan = l.take(60, 100);
    const placed = l.place(50, { deadlineMs: 5000 });
    expect(l.state()).toMatchObject({ bookedBytes: 0, waiting: 1 });
    loan?.return();
    expect((await placed).bytes).toBe(50);
    expect(l.state()).toMatchObject({ bookedBytes: 50, lentBytes: 0, waiting: 0 });
  });

  it("is not starved by later loans (R16)", async () => {
    const l = ledger();
    const first = l.take(60, 100);
    const placed = l.place(50, { deadlineMs: 5000 });
    expect(l.take(20, 100)).toBeUndefined();
    first?.return();
    await placed;
  });

  it("fails with the numbers when its deadline passes, and at once when it can never fit", async () => {
    const l = ledger();
    l.adopt(80);
    await expect(l.place(50, soon)).rejects.toMatchObject({ code: "NO_ROOM" });
    await expect(l.place(91, { deadlineMs: 60_000 })).rejects.toMatchObject({ code: "NO_ROOM" });
    expect(l.state().waiting).toBe(0);
  });

  it("does not use up a wake's time on a node that running actors have filled: another one may have room", async () => {
    const l = ledger();
    l.adopt(80);
    const loan = l.take(5, 100);
    await expect(l.place(50, { deadlineMs: 60_000, bookedMs: 20 })).rejects.toMatchObject({ code: "NO_ROOM" });
    loan?.return();
    expect(l.state().waiting).toBe(0);
  });

  it("waits on for loans, which come back by themselves, and for room that bookings of before it leave", async () => {
    const l = ledger();
    const loan = l.take(60, 100);
    const placed = l.place(50, { deadlineMs: 60_000, bookedMs: 20 });
    const second = l.place(50, { deadlineMs: 60_000, bookedMs: 20 });
    await expect(second).rejects.toMatchObject({ code: "NO_ROOM" });
    expect(l.state().waiting).toBe(1);
    loan?.return();
    await placed;
  });

  it("is granted when the one before it in the line has given up", async () => {
    const l = ledger();
    const loan = l.take(60, 100);
    const first = l.place(80, soon);
    const second = l.place(30, { deadlineMs: 5000 });
    await expect(first).rejects.toMatchObject({ code: "NO_ROOM" });
    expect((await second).bytes).toBe(30);
    loan?.return();
  });

  it("keeps the order: a small one does not overtake a large one that waits", async () => {
    const l = ledger();
    const running = l.adopt(60);
    const order: string[] = [];
    const large = l.place(80, { deadlineMs: 5000 }).then((b) => (order.push("large"), b));
    const small = l.place(10, { deadlineMs: 5000 }).then(() => order.push("small"));
    running.free();
    (await large).free();
    await small;
    expect(order).toEqual(["large", "small"]);
  });
});

describe("R5: where the pod has no limit, a cap bounds what is lent", () => {
  it("refuses what would be above it, and lends again when something came back", () => {
    const l = new MemoryLedger({ limitBytes: 100, reserveBytes: 0, lendCapBytes: 25 });
    const loan = l.take(20, 100);
    expect(l.take(6, 100)).toBeUndefined();
    loan?.return();
    expect(l.take(25, 100)).toBeDefined();
  });
});

describe("R3: memory is tight", () => {
  it("when less than that is unbooked or free, or somebody waits; warm sandboxes count as neither", () => {
    const l = ledger();
    l.warm(90, () => undefined);
    expect(l.tight(90, 0)).toBe(false);
    l.adopt(1);
    expect(l.tight(90, 100)).toBe(true);
    expect(l.tight(50, 100)).toBe(false);
    expect(ledger().tight(50, 49)).toBe(true);
    const waiting = ledger();
    waiting.adopt(80);
    waiting.place(50, { deadlineMs: 60_000 }).catch(() => undefined);
    expect(waiting.tight(1, 100)).toBe(true);
  });
});

describe("warm sandboxes refuse nobody", () => {
  it("are asked back, oldest first, as many as a placement lacks, and no further", async () => {
    const l = ledger();
    const asked: number[] = [];
    const warm = [20, 20, 20].map((bytes, index) => l.warm(bytes, () => asked.push(index)));
    const placed = l.place(50, { deadlineMs: 5000 });
    expect(asked).toEqual([0]);
    expect(warm.map((loan) => loan?.askedBack)).toEqual([true, false, false]);
    expect(l.state()).toMatchObject({ bookedBytes: 0, warmBytes: 60, waiting: 1 });
    warm[0]?.return();
    await placed;
    expect(l.state()).toMatchObject({ bookedBytes: 50, warmBytes: 40, unbookedBytes: 0 });
    expect(() => warm[0]?.return()).toThrow(/twice/);
  });

  it("may end at once, and are left alone where bookings are in the way", async () => {
    const l = ledger();
    const warm: { return(): void }[] = [];
    for (const bytes of [40, 40]) {
      const loan = l.warm(bytes, () => loan?.return());
      if (loan) warm.push(loan);
    }
    const booking = await l.place(60, { deadlineMs: 5000 });
    expect(l.state()).toMatchObject({ bookedBytes: 60, warmBytes: 0 });
    l.warm(20, () => undefined);
    await expect(l.place(40, soon)).rejects.toMatchObject({ code: "NO_ROOM" });
    expect(l.state().warmBytes).toBe(20);
    booking.free();
  });

  it("become part of the booking of the actor that they wait for", async () => {
    const l = ledger();
    const warm = l.warm(30, () => undefined);
    const booking = await l.place(90, { ...soon, ...(warm && { warm }) });
    expect(booking.tookWarm).toBe(true);
    expect(l.state()).toMatchObject({ bookedBytes: 90, warmBytes: 0 });
    expect(() => warm?.return()).toThrow(/twice/);
  });

  it("go back to who came before, and the actor is placed without", async () => {
    const l = ledger();
    const warm = l.warm(30, () => undefined);
    const other = l.warm(10, () => undefined);
    const running = l.adopt(40);
    const first = l.place(80, { deadlineMs: 5000 });
    const second = l.place(40, { deadlineMs: 5000, ...(warm && { warm }) });
    running.free();
    expect([warm?.askedBack, other?.askedBack]).toEqual([true, false]);
    warm?.return();
    (await first).free();
    expect((await second).tookWarm).toBe(false);
  });

  it("are asked back for a loan, which waits for them, and are not for one that they can't help", async () => {
    const l = ledger();
    const free = () => Promise.resolve(l.state().unbookedBytes);
    const asked: (() => void)[] = [];
    for (const bytes of [30, 30]) {
      const loan = l.warm(bytes, () => asked.push(() => loan?.return()));
    }
    const running = l.adopt(20);
    expect(await l.borrow(71, free, { withinMs: 5000 })).toBeUndefined();
    expect(asked).toEqual([]);
    const lent = l.borrow(40, free, { withinMs: 5000 });
    await expect.poll(() => asked.length).toBe(1);
    expect(l.warm(5, () => undefined)).toBeUndefined();
    asked[0]?.();
    expect((await lent)?.bytes).toBe(40);
    running.free();
  });

  it("delay a loan no longer than they may, and loans keep their order (R16)", async () => {
    const l = ledger();
    const free = () => Promise.resolve(1000);
    const warm = l.warm(90, () => undefined);
    const order: string[] = [];
    const first = l.borrow(50, free, { withinMs: 30 }).then((loan) => order.push(`first ${String(loan?.bytes)}`));
    const second = l.borrow(90, free, { withinMs: 5000 }).then((loan) => order.push(`second ${String(loan?.bytes)}`));
    await first;
    warm?.return();
    await second;
    expect(order).toEqual(["first undefined", "second 90"]);
  });
});

it("R16: a small loan does not overtake a large one that waits, though it would fit", async () => {
  const l = ledger();
  const free = () => Promise.resolve(1000);
  const warm = l.warm(50, () => undefined);
  const order: string[] = [];
  const large = l.borrow(60, free, { withinMs: 5000 }).then((loan) => order.push(`large ${String(loan?.bytes)}`));
  const small = l.borrow(30, free, { withinMs: 5000 }).then((loan) => order.push(`small ${String(loan?.bytes)}`));
  await expect.poll(() => warm?.askedBack).toBe(true);
  await turn();
  expect(order).toEqual([]);
  warm?.return();
  await Promise.all([large, small]);
  expect(order).toEqual(["large 60", "small 30"]);
});

describe("what an atelet finds at its start", () => {
  it("counts though it is too much, takes warm memory back, and nothing more is promised", async () => {
    const l = ledger();
    const asked: number[] = [];
    l.warm(10, () => asked.push(1));
    l.adopt(80);
    const loan = l.inherit(30);
    expect(asked).toEqual([1]);
    expect(l.state()).toMatchObject({ bookedBytes: 80, lentBytes: 30, unbookedBytes: -30 });
    expect(l.take(0, 100)).toBeUndefined();
    await expect(l.place(10, soon)).rejects.toMatchObject({ code: "NO_ROOM" });
    loan.return();
  });
});

it("R25: tells of every loan, refusal, return and wait", async () => {
  const told: LedgerEvent["kind"][] = [];
  const l = new MemoryLedger({ limitBytes: 100, reserveBytes: 10, observe: ({ kind }) => told.push(kind) });
  const loan = l.take(60, 100);
  l.take(60, 100);
  await l.borrow(60, () => Promise.resolve(100), { withinMs: 0 });
  await expect(l.place(50, soon)).rejects.toThrow();
  await expect(l.place(91, soon)).rejects.toThrow();
  loan?.return();
  l.warm(90, () => undefined)?.return();
  const warm = l.warm(90, () => warm?.return());
  await l.place(50, soon);
  const refused = ["loan-refused", "loan-refused", "no-room", "no-room"];
  expect(told).toEqual(["lent", ...refused, "loan-returned", "warm-asked-back", "placed"]);
});

it("counts what transfers hold, which is part of the reserve", () => {
  const l = ledger();
  const transfer = l.transfer(5);
  expect(l.state()).toMatchObject({ transferBytes: 5, unbookedBytes: 90 });
  transfer.end();
  expect(() => {
    transfer.end();
  }).toThrow(/twice/);
  expect(l.state().transferBytes).toBe(0);
});

describe("R26: random interleavings", () => {
  const LIMIT = 100;
  const RESERVE = 10;
  const bytes = fc.integer({ min: 1, max: 60 });
  const step = fc.oneof(
    fc.record({ kind: fc.constant("take" as const), bytes, free: fc.integer({ min: 0, max: 100 }) }),
    fc.record({ kind: fc.constant("place" as const), bytes, withWarm: fc.boolean() }),
    fc.record({ kind: fc.constant("warm" as const), bytes: fc.integer({ min: 1, max: 20 }), atOnce: fc.boolean() }),
    fc.record({ kind: fc.constantFrom("borrow", "suspend"), bytes }),
    fc.record({ kind: fc.constantFrom("return", "free", "giveBack", "crash"), which: fc.nat({ max: 9 }) }),
  );

  /** What the ledger has given out, kept by whom it gave it to. */
  class World {
    ledger = new MemoryLedger({ limitBytes: LIMIT, reserveBytes: RESERVE });
    loans: Loan[] = [];
    bookings: Booking[] = [];
    warm: WarmLoan[] = [];
    asked = new Set<WarmLoan>();
    promised = new Set<WarmLoan>();
    placing = 0;
    borrowing = 0;
    life = 0;

    /** Of this ledger, if it has not crashed since. */
    during<T>(promise: Promise<T>, keep: (value: T) => void): void {
      const { life } = this;
      promise.then(
        (value) => {
          if (life === this.life) keep(value);
        },
        () => undefined,
      );
    }

    borrow(wanted: number, then: () => void): void {
      this.borrowing += 1;
      const free = () => Promise.resolve(1000);
      this.during(this.ledger.borrow(wanted, free, { withinMs: 60_000 }), (loan) => {
        this.borrowing -= 1;
        if (loan) this.loans.push(loan);
        then();
      });
    }

    place(wanted: number, warm: WarmLoan | undefined): void {
      this.placing += 1;
      if (warm) this.promised.add(warm);
      // an actor is larger than the sandbox that waits for it
      const size = Math.max(wanted, warm?.bytes ?? 0);
      this.during(this.ledger.place(size, { deadlineMs: 60_000, ...(warm && { warm }) }), (booking) => {
        this.placing -= 1;
        this.bookings.push(booking);
        if (!booking.tookWarm || !warm) return;
        expect(this.asked.has(warm)).toBe(false);
        this.warm = this.warm.filter((loan) => loan !== warm);
      });
    }

    lendWarm(wanted: number, atOnce: boolean): void {
      const loan = this.ledger.warm(wanted, () => {
        if (loan === undefined) throw new Error("asked back before it was lent");
        expect(this.asked.has(loan)).toBe(false);
        this.asked.add(loan);
        if (atOnce) this.giveBack(loan);
      });
      if (loan) this.warm.push(loan);
    }

    giveBack(loan: WarmLoan): void {
      this.warm = this.warm.filter((other) => other !== loan);
      loan.return();
    }

    /** All that was in memory is gone; sandboxes run on, warm ones are removed, dirty pages are dirty. */
    crash(): void {
      this.life += 1;
      this.ledger = new MemoryLedger({ limitBytes: LIMIT, reserveBytes: RESERVE });
      this.bookings = this.bookings.map((booking) => this.ledger.adopt(booking.bytes));
      this.loans = this.loans.map((loan) => this.ledger.inherit(loan.bytes));
      this.warm = [];
      this.placing = this.borrowing = 0;
    }

    check(): void {
      const { bookedBytes, lentBytes, warmBytes, unbookedBytes, waitingBytes } = this.ledger.state();
      const sum = (all: readonly { bytes: number }[]): number => all.reduce((total, one) => total + one.bytes, 0);
      // R1: what was given out is what it says, and never more than there is
      expect([bookedBytes, lentBytes, warmBytes]).toEqual([sum(this.bookings), sum(this.loans), sum(this.warm)]);
      expect(bookedBytes + lentBytes + warmBytes + RESERVE).toBeLessThanOrEqual(LIMIT);
      expect(waitingBytes.length).toBe(this.placing);
      // no lost wake-up: the first of the line waits only while it does not fit
      if (waitingBytes[0] !== undefined) expect(waitingBytes[0]).toBeGreaterThan(unbookedBytes);
    }
  }

  it("keep booked + lent + warm + reserve ≤ limit, give to each what it asked for, and lose no wake-up", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const world = new World();
        for (const one of steps) {
          if (one.kind === "take") {
            const { waiting } = world.ledger.state();
            const loan = world.ledger.take(one.bytes, one.free);
            if (loan) world.loans.push(loan);
            if (loan) expect(one.bytes).toBeLessThanOrEqual(one.free);
            // R2: what the first of the line waits for is not lent; so nothing is, as it would have what there is
            if (loan) expect(waiting).toBe(0);
          } else if (one.kind === "place") {
            const warm = world.warm.find((loan) => !world.promised.has(loan));
            world.place(one.bytes, one.withWarm ? warm : undefined);
          } else if (one.kind === "warm") world.lendWarm(one.bytes, one.atOnce);
          else if (one.kind === "borrow") world.borrow(one.bytes, () => undefined);
          else if (one.kind === "suspend") {
            world.borrow(one.bytes, () => world.bookings.shift()?.free());
          } else if ("which" in one && one.kind === "return") world.loans.splice(one.which, 1)[0]?.return();
          else if ("which" in one && one.kind === "free") world.bookings.splice(one.which, 1)[0]?.free();
          else if ("which" in one && one.kind === "giveBack") {
            const loan = world.warm[one.which];
            if (loan) world.giveBack(loan);
          } else world.crash();
          await turn();
          world.check();
        }
        // all ends that ends by itself: then nobody waits
        for (let rounds = 0; rounds < 200 && world.placing + world.borrowing > 0; rounds += 1) {
          for (const loan of world.loans.splice(0)) loan.return();
          for (const loan of world.warm.filter(({ askedBack }) => askedBack)) world.giveBack(loan);
          world.bookings.shift()?.free();
          await turn();
          world.check();
        }
        expect([world.placing, world.borrowing]).toEqual([0, 0]);
      }),
      { numRuns: 300 },
    );
  });
});
