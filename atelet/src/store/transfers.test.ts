import { expect, it } from "vitest";
import { Transfers } from "./transfers.ts";

it("two go up and two come down at once, and what they hold is counted, 64 MiB of each at most", async () => {
  let bytes = 0;
  const transfers = new Transfers({
    transfer: (more) => {
      bytes += more;
      return { end: () => (bytes -= more) };
    },
  });
  const ends = Array.from({ length: 6 }, () => Promise.withResolvers<undefined>());
  const begun: number[] = [];
  const work = (i: number) => async (): Promise<void> => {
    begun.push(i);
    await ends[i]?.promise;
    if (i === 1) throw new Error("cut");
  };
  const all = [
    transfers.up(1 << 30, work(0)),
    transfers.up(5, work(1)),
    transfers.up(7, work(2)),
    transfers.down(11, work(3)),
    transfers.down(13, work(4)),
    transfers.down(17, work(5)),
  ];
  const settled = Promise.allSettled(all);
  await expect.poll(() => begun).toEqual([0, 1, 3, 4]);
  expect(bytes).toBe((64 << 20) + 5 + 11 + 13);
  ends[1]?.resolve(undefined);
  await expect.poll(() => begun).toEqual([0, 1, 3, 4, 2]);
  for (const { resolve } of ends) resolve(undefined);
  expect((await settled).filter(({ status }) => status === "rejected")).toHaveLength(1);
  expect(bytes).toBe(0);
});
