import { execFile } from "node:child_process";
import { cp, readdir, readFile, statfs, truncate } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { imageSize } from "@substrate/atelet/sandbox/gvisor/image.ts";

import { control } from "../support/cgroups.ts";
import { eventually } from "../support/poll.ts";
import { openRig } from "./open-rig.ts";
import { answer, type Place, type SandboxRig } from "./rig.ts";

const run = promisify(execFile);
const mib = 1024 * 1024;

let rig: SandboxRig;
beforeAll(async () => {
  rig = await openRig();
});
afterAll(async () => {
  await rig.close();
});

interface Counts {
  memory: number;
  file: number;
  pid: number;
}

async function count(place: Place): Promise<Counts> {
  const { memory, file, pid } = JSON.parse(await answer(place, "GET", "/")) as Counts;
  return { memory, file, pid };
}

async function restore(place: Place, imageDir: string): Promise<void> {
  await rig.cgroups.create(place.spec.id);
  await place.putAddress();
  await rig.runtime.restore(place.spec, { imageDir, direct: false, keepConnections: false });
}

/** Everything of a sandbox that could be left behind. */
async function traces(id: string): Promise<string[]> {
  const { stdout } = await run("ps", ["-eo", "stat,args"]);
  const processes = stdout.split("\n").filter((line) => line.includes(id) && !line.startsWith("Z"));
  const files = await readdir(join(rig.dir, "rt"), { recursive: true });
  return [...processes, ...files.filter((name) => name.includes(id)), ...(await rig.cgroups.list())].filter((trace) =>
    trace.includes(id),
  );
}

describe("a counting program", () => {
  let place: Place;
  let first: Counts;

  it("runs within its limits and writes to its output file", async () => {
    place = await rig.place("counter", { memoryMiB: 128 });
    await rig.start(place);
    first = await count(place);
    expect(first).toMatchObject({ memory: 2, file: 2 });
    const memory = await rig.cgroups.actor(place.spec.id);
    expect(memory.limitBytes).toBe(160 * mib);
    expect(memory.usageBytes).toBeGreaterThan(8 * mib);
    const pod = await rig.cgroups.pod();
    expect(pod.usageBytes).toBeGreaterThanOrEqual(memory.shmemBytes);
    expect(await rig.runtime.alive(place.spec.id)).toBe(true);
  });

  it("goes on after a checkpoint that is undone by resume", async () => {
    const { id } = place.spec;
    const imageDir = await rig.imageDir("undone");
    await rig.cgroups.moveToSnapshots(id, { lent: true });
    await rig.runtime.pause(id);
    expect(await rig.runtime.checkpoint(id, imageDir, { direct: false })).toBeGreaterThan(mib);
    expect(await rig.runtime.list()).toMatchObject([{ id, status: "paused" }]);
    await rig.runtime.resume(id);
    await rig.cgroups.moveBack(id);
    expect(await count(place)).toEqual({ memory: 3, file: 3, pid: first.pid });
    const processes = await control(place.spec.cgroupPath, { v1: ["memory", "cgroup.procs"], v2: "cgroup.procs" });
    expect(processes.split("\n").length).toBeGreaterThan(1);
  });

  it("comes back with memory, files and process id, twice from the same image, and is removed whole", async () => {
    const { id } = place.spec;
    const imageDir = await rig.imageDir("kept");
    await rig.runtime.pause(id);
    await rig.runtime.checkpoint(id, imageDir, { direct: false });
    await rig.runtime.delete(id);
    await rig.cgroups.remove(id);
    expect(await traces(id)).toEqual([]);
    for (let round = 0; round < 2; round += 1) {
      await restore(place, imageDir);
      expect(await count(place)).toEqual({ memory: 4, file: 4, pid: first.pid });
      await rig.runtime.waitRestored(id);
      await rig.cgroups.limitCpu(id, 500);
      const quota = await control(place.spec.cgroupPath, { v1: ["cpu", "cpu.cfs_quota_us"], v2: "cpu.max" });
      expect(quota).toMatch(/^50000\b/);
      expect((await rig.cgroups.actor(id)).limitBytes).toBe(160 * mib);
      await rig.runtime.delete(id);
      await rig.cgroups.remove(id);
    }
    expect(await traces(id)).toEqual([]);
  });

  it("is not restored from a truncated image, and nothing is left of the try", async () => {
    const { id } = place.spec;
    const imageDir = await rig.imageDir("truncated");
    await cp(join(rig.dir, "image-kept"), imageDir, { recursive: true });
    await truncate(join(imageDir, "pages.img"), 8192);
    await expect(restore(place, imageDir)).rejects.toMatchObject({
      code: "RESTORE_FAILED",
      message: expect.stringContaining("pages.img has 8192 bytes") as string,
    });
    expect(await traces(id)).toEqual([]);
  });

  it("is not restored from an image of another program, and nothing is left of the try", async () => {
    const other: Place = { ...place, spec: { ...place.spec, args: ["/glutton"] } };
    await expect(restore(other, join(rig.dir, "image-kept"))).rejects.toMatchObject({ code: "RESTORE_FAILED" });
    expect(await rig.runtime.list()).toEqual([]);
    await rig.cgroups.remove(place.spec.id);
    expect(await traces(place.spec.id)).toEqual([]);
  });
});

describe("a program that holds memory", () => {
  let place: Place;
  const heldMiB = 48;

  it("keeps living when its image does not fit on the disk, and its cgroup is not charged for an image", async () => {
    place = await rig.place("glutton", { memoryMiB: 96 });
    const { id } = place.spec;
    await rig.start(place);
    await answer(place, "POST", `/hold?mib=${heldMiB}&kind=random`);
    const digest = await answer(place, "GET", "/digest");
    const before = await rig.cgroups.actor(id);

    const fullDir = await rig.fullDisk("full", 8);
    await rig.runtime.pause(id);
    await expect(rig.runtime.checkpoint(id, fullDir, { direct: false })).rejects.toMatchObject({
      code: "CHECKPOINT_FAILED",
      message: expect.stringContaining("still there") as string,
    });
    expect(await readdir(fullDir)).toEqual([]);
    const { blocks, bfree } = await statfs(fullDir);
    expect(blocks - bfree).toBe(0);
    await rig.runtime.resume(id);
    expect(await answer(place, "GET", "/digest")).toBe(digest);

    const imageDir = await rig.imageDir("large");
    await rig.cgroups.moveToSnapshots(id, { lent: true });
    await rig.runtime.pause(id);
    const size = await rig.runtime.checkpoint(id, imageDir, { direct: false });
    expect(size).toBeGreaterThan(heldMiB * mib);
    const after = await rig.cgroups.actor(id);
    expect(after.cleanCacheBytes + after.dirtyBytes).toBeLessThan(4 * mib);
    expect(after.usageBytes).toBeLessThan(before.usageBytes + heldMiB * mib * 0.5);
    await rig.runtime.resume(id);
    await rig.cgroups.moveBack(id);
    expect(await answer(place, "GET", "/digest")).toBe(digest);
  });

  it("is adopted by a new runtime object, which can checkpoint and delete it; its output goes on after a restore", async () => {
    const { id } = place.spec;
    const underWay = await rig.imageDir("under-way");
    const writing = rig.runtime.checkpoint(id, underWay, { direct: false });
    await eventually(
      async () => {
        expect(await readdir(underWay)).toContain("pages.img");
      },
      {
        deadlineMs: 20_000,
        everyMs: 1,
      },
    );
    const adopter = rig.newRuntime();
    await adopter.start();
    // what the earlier one had asked for is whole by now
    expect(await imageSize(underWay)).toBeGreaterThan(mib);
    await writing;
    expect(await adopter.list()).toMatchObject([{ id, status: "running" }]);
    expect(await adopter.alive(id)).toBe(true);
    await expect(adopter.run(place.spec)).rejects.toThrow("exists already");
    await adopter.pause(id);
    const imageDir = await rig.imageDir("adopted");
    await adopter.checkpoint(id, imageDir, { direct: true });
    await adopter.delete(id);
    await rig.cgroups.remove(id);
    expect(await traces(id)).toEqual([]);

    await restore(place, imageDir);
    await answer(place, "POST", "/touch");
    // connections of before the restore are reset, also those that the client keeps in its pool
    await expect(answer(place, "POST", "/hold?mib=1&kind=unheard")).rejects.toThrow("400");
    await eventually(
      async () => {
        expect(await readFile(place.spec.stderrPath, "utf8")).toContain("unheard");
      },
      {
        deadlineMs: 20_000,
      },
    );
    await rig.runtime.delete(id);
    await rig.cgroups.remove(id);
    expect(await traces(id)).toEqual([]);
  });

  it("is seen to be dead after kill -9 and after its own exit", async () => {
    const { id } = place.spec;
    for (const end of ["kill", "exit"]) {
      await rig.cgroups.create(id);
      await rig.start(place);
      if (end === "kill") process.kill((await rig.runtime.pids(id)).sandbox, "SIGKILL");
      else await answer(place, "POST", "/exit?code=3");
      await eventually(
        async () => {
          expect(await rig.runtime.alive(id)).toBe(false);
        },
        { deadlineMs: 10_000, everyMs: 5 },
      );
      expect(await rig.runtime.list()).toMatchObject([{ id, status: "stopped" }]);
      await rig.runtime.delete(id);
      await rig.cgroups.remove(id);
      expect(await traces(id)).toEqual([]);
    }
  });
});

describe("a runtime", () => {
  it("names its build and refuses ids that could be prefixes", async () => {
    expect(await rig.runtime.capabilities()).toMatchObject({ backgroundRestore: true });
    await expect(rig.runtime.pause("abc")).rejects.toMatchObject({ code: "INVALID" });
    await rig.runtime.delete("0".repeat(32));
  });
});
