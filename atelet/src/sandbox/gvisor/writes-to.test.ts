import { closeSync, openSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, it } from "vitest";
import { writesTo } from "./process.ts";

it("regression: while other files were closed, an image that was being written was taken for done", async () => {
  const dir = await mkdtemp(join(tmpdir(), "writes-"));
  const other = join(dir, "other");
  await writeFile(other, "");
  try {
    for (let round = 0; round < 30; round += 1) {
      const others = Array.from({ length: 40 }, () => openSync(other, "r"));
      const image = openSync(join(dir, "pages.img"), "w");
      const writing = writesTo(process.pid, ["pages.img"]);
      for (const fd of others) {
        await nextTurn();
        closeSync(fd);
      }
      expect(await writing).toBe(true);
      closeSync(image);
    }
    expect(await writesTo(process.pid, ["pages.img"])).toBe(false);
  } finally {
    await rm(dir, { recursive: true });
  }
});
