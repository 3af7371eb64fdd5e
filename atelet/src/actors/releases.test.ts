import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { Releases } from "./releases.ts";

it("regression: a release that was being written at a kill stayed for ever", async () => {
  const dir = await mkdtemp(join(tmpdir(), "releases-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  const releases = new Releases(dir);
  await releases.load(0);
  await releases.record("a", 3, 0);
  await writeFile(join(dir, "b.json.tmp"), "{");
  const next = new Releases(dir);
  await next.load(0);
  expect(next.epoch("a")).toBe(3);
  expect(await readdir(dir)).toEqual(["a.json"]);
});
