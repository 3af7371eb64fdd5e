import { globSync, readFileSync } from "node:fs";
import { mkdtemp, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { writeJson } from "./node-files.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "node-files-"));
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(dir, { recursive: true });
});

it("R21: a record takes the place of the one before in one step, and waits for the disk only where it is told to", async () => {
  const path = join(dir, "record.json");
  await writeFile(path, "old");
  const before = await open(path);
  const sync = vi.spyOn(Object.getPrototypeOf(before) as typeof before, "sync");
  try {
    await writeJson(path, { new: true }, { durable: false });
    expect(sync).not.toHaveBeenCalled();
    // who has opened the old one reads the old one, whole
    expect(await before.readFile("utf8")).toBe("old");
    expect((await stat(path)).ino).not.toBe((await before.stat()).ino);
  } finally {
    await before.close();
  }
  expect(JSON.parse(await readFile(path, "utf8"))).toEqual({ new: true });
  expect(await readdir(dir)).toEqual(["record.json"]);
  await writeJson(path, {}, { durable: true });
  // the file, and the folder that has its name
  expect(sync).toHaveBeenCalledTimes(2);
});

it("R11, R21, R23: only records of what safety rests on, and stores, are ever synced", () => {
  const files = globSync("**/*.ts", { cwd: import.meta.dirname }).filter((name) => !name.endsWith(".test.ts"));
  const syncs = /\b(?:fsync|fdatasync|datasync|syncfs)(?:Sync)?\(|\.sync\(|\bO_D?SYNC\b/;
  const found = files.filter((name) => syncs.test(readFileSync(join(import.meta.dirname, name), "utf8")));
  const store = ["copier.ts", "copy-worker.ts", "file.ts", "folder.ts"].map((name) => `store/${name}`);
  expect(found.sort()).toEqual(["node-files.ts", ...store]);
});
