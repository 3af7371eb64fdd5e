import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { GenerationFolder } from "./folder.ts";

const noChecks = { digest: () => Promise.reject(new Error("none")), verify: () => Promise.resolve(undefined) };
let dir: string;
let folder: GenerationFolder;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "generations-"));
  folder = new GenerationFolder(dir, noChecks);
});
afterEach(() => rm(dir, { recursive: true }));

const meta = {
  epoch: 3,
  revision: "r1",
  imageDigest: "sha256:0",
  runtime: "1",
  fidelity: "Memory",
  envDigest: "",
  rootfsTar: false,
  createdAtMs: 5,
} as const;
async function make(generation: number): Promise<void> {
  const partial = await folder.begin(generation);
  await writeFile(join(partial, "pages.img"), "x".repeat(generation * 10));
  await folder.commit({ ...meta, volumes: [], generation });
}

describe("a generation on the node", () => {
  it("exists from its rename on, and is found again newest first", async () => {
    await make(9);
    await make(10);
    const { records, removed } = await folder.load();
    expect(records.map((r) => r.generation)).toEqual([10, 9]);
    expect(records[0]).toMatchObject({ ...meta, files: [{ name: "pages.img", sizeBytes: 100 }] });
    expect(removed).toEqual([]);
  });

  it("a crash before the rename or in the middle of a removal leaves nothing that counts", async () => {
    await make(1);
    await writeFile(join(await folder.begin(2), "pages.img"), "half");
    const { records, removed } = await new GenerationFolder(dir, noChecks).load();
    expect(records.map((r) => r.generation)).toEqual([1]);
    expect(removed).toEqual(["2.partial"]);
    expect(await readdir(dir)).toEqual(["1"]);
  });

  it("regression: a committed one whose record could not be read was removed, for ever", async () => {
    await make(1);
    await make(2);
    const text = JSON.stringify({ format: 2, generation: 2 });
    await writeFile(join(dir, "2", "generation.json"), text);
    const { records, removed, aside } = await folder.load();
    expect(records.map((r) => r.generation)).toEqual([1]);
    expect(removed).toEqual([]);
    expect(aside).toEqual([join(dir, "2.unreadable")]);
    expect(await readFile(join(dir, "2.unreadable", "image", "pages.img"), "utf8")).toBe("x".repeat(20));
    expect(await folder.load()).toMatchObject({ removed: [], aside: [] });
  });

  it("regression: what was being written beside an image stayed after a kill", async () => {
    await make(1);
    for (const name of ["pages.table.partial", "generation.json.tmp"]) await writeFile(join(dir, "1", name), "half");
    expect((await folder.load()).records).toHaveLength(1);
    expect((await readdir(join(dir, "1"))).filter((name) => /partial|tmp/.test(name))).toEqual([]);
  });

  it("a truncated or missing file is seen before a restore", async () => {
    await make(1);
    const record = (await folder.load()).records[0];
    if (record === undefined) throw new Error("no record");
    expect(await folder.check(record)).toEqual({ seal: undefined });
    await truncate(join(folder.path(1), "pages.img"), 3);
    expect(await folder.check(record)).toEqual({ damage: expect.stringContaining("3 bytes instead of 10") as string });
    await rm(join(folder.path(1), "pages.img"));
    expect(await folder.check(record)).toEqual({ damage: "pages.img is missing" });
  });

  it("R22: a commit over an older generation of the same number unlinks that first", async () => {
    await make(1);
    await make(1);
    expect((await folder.load()).records.map((r) => r.generation)).toEqual([1]);
  });

  it("begin starts from an empty folder though an earlier try left files", async () => {
    await writeFile(join(await folder.begin(1), "old"), "old");
    expect(await readdir(await folder.begin(1))).toEqual([]);
  });
});
