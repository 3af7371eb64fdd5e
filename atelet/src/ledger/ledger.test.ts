import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Booking, type Loan } from "./contract.ts";
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

it("R26: any interleaving of take, return, place and free keeps booked + lent + reserve ≤ limit and loses no wake-up", async () => {
  const step = fc.record({
    kind: fc.constantFrom("take", "return", "place", "free"),
    bytes: fc.integer({ min: 1, max: 60 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const l = ledger();
      const loans: Loan[] = [];
      const bookings: Booking[] = [];
      const pending: Promise<void>[] = [];
      let granted = 0;
      for (const { kind, bytes } of steps) {
        if (kind === "take") {
          const loan = l.take(bytes, 100);
          if (loan) loans.push(loan);
        } else if (kind === "return") loans.shift()?.return();
        else if (kind === "free") bookings.shift()?.free();
        else {
          pending.push(
            l.place(bytes, { deadlineMs: 60_000 }).then((booking) => {
              granted += 1;
              bookings.push(booking);
            }),
          );
        }
        await Promise.resolve();
        const { bookedBytes, lentBytes } = l.state();
        expect(bookedBytes + lentBytes + 10).toBeLessThanOrEqual(100);
      }
      for (const loan of loans.splice(0)) loan.return();
      for (let rounds = 0; granted < pending.length && rounds < 200; rounds++) {
        await Promise.resolve();
        bookings.shift()?.free();
      }
      await Promise.all(pending);
      expect(granted).toBe(pending.length);
    }),
    { numRuns: 200 },
  );
});
