import { link, mkdir, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { bytesBelow, localBytes, snapshotBytes } from "./local-bytes.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "local-"));
});
afterEach(() => rm(dir, { recursive: true }));

const KIB = 1024;
const put = async (path: string, kib: number): Promise<void> => {
  await mkdir(dirname(join(dir, path)), { recursive: true });
  await writeFile(join(dir, path), Buffer.alloc(kib * KIB, 1));
};

it("counts allocated blocks by what they are for, each file once", async () => {
  await put("actors/a/generations/1/image/pages.img", 256);
  await put("actors/a/generations/1/pages.table", 64);
  await mkdir(join(dir, "actors/a/stored"));
  await link(join(dir, "actors/a/generations/1/pages.table"), join(dir, "actors/a/stored/pages.table"));
  await put("actors/a/volumes/data/layers/1/data/f", 128);
  await put("origins/o/image/pages.img", 512);
  await put("origins/o/volumes/data/data/f", 32);
  await put(`images/${"a".repeat(64)}/rootfs/f`, 96);
  await put("released/x.json", 4);
  const sparse = await open(join(dir, "actors/a/generations/1/image/sparse"), "w");
  await sparse.truncate(2 ** 30);
  await sparse.close();

  const known = new Map<string, number>();
  const found = localBytes(dir, known);
  const within = (bytes: number, kib: number): void => {
    expect(bytes).toBeGreaterThanOrEqual(kib * KIB);
    // folders take some blocks themselves
    expect(bytes).toBeLessThan((kib + 40) * KIB);
  };
  within(found.generation, 320);
  within(found.origin, 512);
  within(found.volume, 160);
  within(found.image, 96);
  within(found.other, 4);
  expect([...known.keys()]).toEqual(["a".repeat(64)]);
  within(snapshotBytes(dir), 832);
  within(bytesBelow(join(dir, "actors/a/generations/1")), 320);
  expect(bytesBelow(join(dir, "nothing"))).toBe(0);
});
