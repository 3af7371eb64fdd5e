import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, it } from "vitest";
import { FileStore } from "@substrate/atelet/store/file.ts";

const run = promisify(execFile);

let dir: string;
let root: string;
const adders: ChildProcess[] = [];
let mounted = false;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "store-"));
  root = join(dir, "store");
});

afterEach(async () => {
  for (const adder of adders.splice(0)) {
    if (adder.exitCode !== null || adder.signalCode !== null) continue;
    adder.kill("SIGKILL");
    await once(adder, "exit");
  }
  if (mounted) await run("umount", [root]);
  mounted = false;
  await rm(dir, { recursive: true });
});

async function mountSmall(options: string): Promise<void> {
  await mkdir(root, { mode: 0o700 });
  await run("mount", ["-t", "tmpfs", "-o", `mode=700,${options}`, "tmpfs", root]);
  mounted = true;
}

/** A process that adds to object "n"; `written` grows by each number that it was told is stored. */
function startAdder(times: number, onWritten: () => void = () => undefined) {
  const path = join(import.meta.dirname, "adder.ts");
  const child = spawn(process.execPath, [path, root, "n", String(times)], { stdio: ["ignore", "pipe", "inherit"] });
  adders.push(child);
  const written: number[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    written.push(Number(line));
    onWritten();
  });
  return { child, written, ended: once(child, "close") };
}

it("loses no write between processes, one of which is killed in the middle", async () => {
  const store = await FileStore.open(root);
  const victim = startAdder(1_000_000, () => {
    if (victim.written.length === 20) victim.child.kill("SIGKILL");
  });
  const others = [startAdder(40), startAdder(40)];
  await Promise.all([victim, ...others].map(({ ended }) => ended));
  const written = [victim, ...others].flatMap((adder) => adder.written).sort((a, b) => a - b);
  const last = Number((await store.get("n"))?.body.toString());
  expect(new Set(written).size).toBe(written.length);
  // The victim may have stored one number that it could not tell any more.
  expect(last - written.length).toBeGreaterThanOrEqual(0);
  expect(last - written.length).toBeLessThanOrEqual(1);
  await store.put("n", Buffer.from("free"));
  expect(await store.list("")).toEqual(["n"]);
  await store.close();
});

it("says that the disk is full, keeps what it has, and goes on when there is room", async () => {
  await mountSmall("size=8m");
  const store = await FileStore.open(root);
  const [large, small] = [join(dir, "large"), join(dir, "small")];
  await writeFile(large, Buffer.alloc(16 << 20, 1));
  await writeFile(small, "small");
  const stored = await store.putFile("a/small", small);
  await expect(store.putFile("a/large", large)).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
    message: expect.stringMatching(/a\/large.*ENOSPC.*free space/) as string,
  });
  expect(await readdir(join(root, ".tmp"))).toEqual([]);
  expect(await store.list("")).toEqual(["a/small"]);
  await store.getFile("a/small", join(dir, "fetched"), stored);
  await store.close();
});

it("says that the disk is read-only, and notices when it is unmounted", async () => {
  await mountSmall("size=8m");
  const store = await FileStore.open(root);
  await store.put("k", Buffer.from("1"));
  await run("mount", ["-o", "remount,ro", root]);
  await expect(store.put("k", Buffer.from("2"))).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
    message: expect.stringContaining("mount it writable") as string,
  });
  expect((await store.get("k"))?.body.toString()).toBe("1");
  await run("umount", [root]);
  mounted = false;
  await expect(store.get("k")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await store.close();
});
