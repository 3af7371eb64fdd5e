import { expect, it } from "vitest";
import { Patience } from "./patience.ts";
import { Urgency } from "./urgency.ts";

/** Longer than it must have been quiet before the work goes on. */
const LONG_MS = 60_000;

it("work that can wait lets a wake go first", async () => {
  const urgency = new Urgency();
  const wake = Promise.withResolvers<undefined>();
  const order: string[] = [];
  const woken = urgency.during(() => wake.promise).then(() => order.push("woken"));
  const calm = new Patience(urgency, LONG_MS).calm().then(() => order.push("calm"));
  wake.resolve(undefined);
  await Promise.all([woken, calm]);
  expect(order).toEqual(["woken", "calm"]);
});

it("on a node that is never quiet it goes on when its patience is at its end, and then without a pause", async () => {
  const urgency = new Urgency();
  void urgency.during(() => new Promise(() => undefined));
  const patience = new Patience(urgency, 1);
  await patience.calm();
  await patience.calm();
  expect(urgency.isQuiet(0)).toBe(false);
});

it("nothing is waited for once somebody waits for the work itself", async () => {
  const urgency = new Urgency();
  void urgency.during(() => new Promise(() => undefined));
  const patience = new Patience(urgency, LONG_MS);
  const calm = patience.calm();
  patience.end();
  await calm;
});
