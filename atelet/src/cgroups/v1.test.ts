import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { freeBytes, lendCapBytes } from "./cgroups.ts";
import { CgroupsV1 } from "./v1.ts";

let mount: string;
beforeEach(async () => {
  mount = await mkdtemp(join(tmpdir(), "cgroup1-"));
});
afterEach(async () => {
  await rm(mount, { recursive: true });
});

async function put(path: string, text: string): Promise<void> {
  await mkdir(dirname(join(mount, path)), { recursive: true });
  await writeFile(join(mount, path), text);
}

const own = "cache 1\nshmem 1\ndirty 1\nwriteback 1\n";
const total = "total_cache 9000\ntotal_shmem 5000\ntotal_dirty 1000\ntotal_writeback 500\n";

function cgroups(): CgroupsV1 {
  return new CgroupsV1(new Map(["memory", "cpu", "pids"].map((name) => [name, mount])), "/pod");
}

it("R29: takes the totals, which also have what children left that are gone", async () => {
  await put("pod/memory.usage_in_bytes", "12100\n");
  await put("pod/memory.stat", `${own}hierarchical_memory_limit 200000000\n${total}`);
  expect(await cgroups().pod()).toEqual({
    usageBytes: 12100,
    limitBytes: 200000000,
    limited: true,
    shmemBytes: 5000,
    cleanCacheBytes: 2500,
    dirtyBytes: 1000,
    writebackBytes: 500,
  });
});

it("R4: clean page cache is free, dirty pages and shared memory are not", async () => {
  await put("pod/memory.usage_in_bytes", "90000000\n");
  const cache = "total_cache 50000000\ntotal_shmem 10000000\ntotal_dirty 5000000\ntotal_writeback 1000000\n";
  await put("pod/memory.stat", `hierarchical_memory_limit 100000000\n${cache}`);
  expect(await freeBytes(await cgroups().pod())).toBe(10_000_000 + 34_000_000);
});

it("R5: a pod without a limit has no more than the machine can give", async () => {
  await put("pod/memory.usage_in_bytes", "12100\n");
  await put("pod/memory.stat", `hierarchical_memory_limit 9223372036854771712\n${total}`);
  const pod = await cgroups().pod();
  expect(pod.limited).toBe(false);
  expect(await freeBytes({ ...pod, usageBytes: 0 })).toBeLessThan(pod.limitBytes);
  expect(lendCapBytes(pod, 25)).toBe(Math.floor(pod.limitBytes / 4));
  expect(lendCapBytes({ ...pod, limited: true }, 25)).toBeUndefined();
});

it("R17: reads what snapshots have in memory that is not on the disk from their own group", async () => {
  expect(await cgroups().snapshots()).toEqual({ dirtyBytes: 0, writebackBytes: 0 });
  await put("pod/snapshots/memory.stat", `${own}${total}`);
  expect(await cgroups().snapshots()).toEqual({ dirtyBytes: 1000, writebackBytes: 500 });
});

it("R6: nothing bounds what is written on v1 but going around the page cache", async () => {
  expect(await cgroups().moveToSnapshots("a", { lent: true })).toEqual({ direct: false });
  expect(await cgroups().moveToSnapshots("a", { lent: false })).toEqual({ direct: true });
});

it("regression: a group whose removal an atelet's end cut off stayed in the controllers that were left", async () => {
  const mounts = new Map(["memory", "cpu", "pids"].map((name) => [name, join(mount, name)]));
  await put("memory/pod/actors/running/cgroup.procs", "");
  await put("cpu/pod/actors/running/cgroup.procs", "");
  await put("pids/pod/actors/half-removed/cgroup.procs", "");
  expect((await new CgroupsV1(mounts, "/pod").list()).sort()).toEqual(["half-removed", "running"]);
});
