import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";

import { CgroupsV2 } from "./v2.ts";

/** Files as Linux 6.12 shows them. What the kernel does with writes is tried in a guest: e2e/cgroups. */
let mount: string;
beforeEach(async () => {
  mount = await mkdtemp(join(tmpdir(), "cgroup2-"));
});
afterEach(async () => {
  await rm(mount, { recursive: true });
});

async function put(path: string, text: string): Promise<void> {
  await mkdir(dirname(join(mount, path)), { recursive: true });
  await writeFile(join(mount, path), text);
}

const stat = "anon 3000\nfile 9000\nkernel 100\nshmem 5000\nfile_mapped 70\nfile_dirty 1000\nfile_writeback 500\n";

it("reads use and what of it is free at any moment, under the lowest limit above", async () => {
  await put("pod/memory.max", "200000000\n");
  await put("pod/actors/memory.max", "max\n");
  await put("pod/actors/a/memory.max", "160000000\n");
  for (const group of ["pod", "pod/actors/a"]) {
    await put(`${group}/memory.current`, "12100\n");
    await put(`${group}/memory.stat`, stat);
  }
  const cgroups = new CgroupsV2(mount, "/pod");
  const expected = {
    usageBytes: 12100,
    limitBytes: 160000000,
    limited: true,
    shmemBytes: 5000,
    cleanCacheBytes: 2500,
    dirtyBytes: 1000,
    writebackBytes: 500,
  };
  expect(await cgroups.actor("a")).toEqual(expected);
  expect(await cgroups.pod()).toEqual({ ...expected, limitBytes: 200000000 });
  await put("pod/actors/a/memory.max", "max\n");
  expect((await cgroups.actor("a")).limitBytes).toBe(200000000);
});

it("takes the machine's memory for a limit where there is none, and says what a root group lacks", async () => {
  await put("memory.stat", stat);
  await expect(new CgroupsV2(mount, "").pod()).rejects.toThrow("no memory.current");
  await put("memory.current", "12100\n");
  const total = /^MemTotal:\s+(\d+)/m.exec(await readFile("/proc/meminfo", "utf8"))?.[1];
  const pod = await new CgroupsV2(mount, "").pod();
  expect([pod.limitBytes, pod.limited]).toEqual([Number(total) * 1024, false]);
});

it("tells which limits were hit, also of a group that is gone or a kernel without pids.peak", async () => {
  const cgroups = new CgroupsV2(mount, "");
  expect(await cgroups.limitsHit("a")).toEqual({ memory: false, processes: undefined, mostProcesses: 0 });
  await put("actors/a/memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n");
  await put("actors/a/pids.events", "max 0\n");
  await put("actors/a/pids.max", "4096\n");
  expect(await cgroups.limitsHit("a")).toEqual({ memory: false, processes: undefined, mostProcesses: 0 });
  await put("actors/a/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\noom_group_kill 0\n");
  await put("actors/a/pids.events", "max 2\n");
  await put("actors/a/pids.peak", "4096\n");
  expect(await cgroups.limitsHit("a")).toEqual({ memory: true, processes: 4096, mostProcesses: 4096 });
});

it("sets the quota of CPU and reads its use", async () => {
  const cgroups = new CgroupsV2(mount, "/pod");
  await put("pod/actors/a/cpu.stat", "usage_usec 1234567\nuser_usec 1\nsystem_usec 2\n");
  expect(await cgroups.cpuNs("a")).toBe(1_234_567_000n);
  expect(await cgroups.cpuNs("gone")).toBe(0n);
  await cgroups.limitCpu("a", 500);
  expect(await readFile(join(mount, "pod/actors/a/cpu.max"), "utf8")).toBe("50000 100000");
  await cgroups.limitCpu("a", 1);
  expect(await readFile(join(mount, "pod/actors/a/cpu.max"), "utf8")).toBe("1000 100000");
});

it("makes room for a group, lists those that are there or away for a snapshot, and removes all", async () => {
  const cgroups = new CgroupsV2(mount, "/pod");
  expect(await cgroups.list()).toEqual([]);
  await mkdir(join(mount, "pod/actors/a"), { recursive: true });
  expect(await cgroups.create("a")).toBe("/pod/actors/a");
  expect(await cgroups.list()).toEqual([]);
  await mkdir(join(mount, "pod/actors/a"));
  await mkdir(join(mount, "pod/snapshots/a"), { recursive: true });
  await mkdir(join(mount, "pod/snapshots/b"));
  expect((await cgroups.list()).sort()).toEqual(["a", "b"]);
  await cgroups.moveBack("b");
  await cgroups.destroy();
  expect(await cgroups.list()).toEqual([]);
  await expect(readFile(join(mount, "pod/actors"))).rejects.toThrow("ENOENT");
});

it("R6: without a loan an actor is moved to where writing beyond a bound is slowed down, and to no such place with one", async () => {
  const cgroups = new CgroupsV2(mount, "/pod");
  const high = (group: string): Promise<string> => readFile(join(mount, "pod", group, "memory.high"), "utf8");
  expect(await cgroups.moveToSnapshots("a", { lent: true })).toEqual({ direct: false });
  await expect(high("snapshots")).rejects.toThrow("ENOENT");
  expect(await cgroups.moveToSnapshots("b", { lent: false })).toEqual({ direct: false });
  expect(await high("unlent")).toBe(String(64 * 2 ** 20));
  expect((await cgroups.list()).sort()).toEqual(["a", "b"]);
  await cgroups.moveBack("b");
  expect(await cgroups.list()).toEqual(["a"]);
});

it("R17: tells what snapshots have in memory that is not on the disk, lent for or not", async () => {
  const cgroups = new CgroupsV2(mount, "/pod");
  expect(await cgroups.snapshots()).toEqual({ dirtyBytes: 0, writebackBytes: 0 });
  await put("pod/snapshots/memory.stat", stat);
  await put("pod/unlent/memory.stat", stat);
  expect(await cgroups.snapshots()).toEqual({ dirtyBytes: 2000, writebackBytes: 1000 });
});

it("never writes process 0, which the kernel would take for the atelet itself", async () => {
  await put("snapshots/a/cgroup.procs", "0\n");
  await expect(new CgroupsV2(mount, "").moveBack("a")).rejects.toThrow("another pid namespace");
});
