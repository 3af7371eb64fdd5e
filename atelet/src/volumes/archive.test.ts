import { mkdir, mkdtemp, readdir, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { packFolder, unpackFolder } from "./archive.ts";
import { runTool } from "./commands.ts";

const { signal } = new AbortController();
let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "archive-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

test("a volume comes back from the store though tar has something to say of each of its files", async () => {
  const [from, to] = [join(dir, "from"), join(dir, "to")];
  await mkdir(from);
  await mkdir(to);
  // 1.5 MiB of warnings
  const count = 6_000;
  const future = new Date("2096-10-02T00:00:00Z");
  for (let i = 0; i < count; i += 1) {
    const path = join(from, `${"n".repeat(200)}-${i}`);
    await writeFile(path, "");
    await utimes(path, future, future);
  }
  await packFolder(from, join(dir, "volume.tar"), signal);
  await unpackFolder(join(dir, "volume.tar"), to, signal);
  const [first = "", ...more] = await readdir(to);
  expect(more).toHaveLength(count - 1);
  expect((await stat(join(to, first))).mtime).toEqual(future);
});

test("a tool that floods its error output is heard to its end; what it said first is its failure", async () => {
  const flood = `echo disk full >&2; head -c 3000000 /dev/zero >&2; exit`;
  await expect(runTool("sh", ["-c", `${flood} 0`], { timeoutMs: 10_000 })).resolves.toBe("");
  await expect(runTool("sh", ["-c", `${flood} 3`], { timeoutMs: 10_000 })).rejects.toThrow(/^sh failed: disk full/);
  await expect(runTool("sleep", ["10"], { timeoutMs: 50 })).rejects.toThrow("ended by SIGKILL");
  await expect(runTool("no-such-tool", [], { timeoutMs: 50 })).rejects.toThrow("ENOENT");
});
