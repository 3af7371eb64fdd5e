import { execFileSync } from "node:child_process";
import { mkdir, readFile, truncate } from "node:fs/promises";
import { join } from "node:path";
import { OverlayMounts } from "@substrate/atelet/volumes/mounts.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { openRig } from "../sandbox/open-rig.ts";
import { answer, type Place, type SandboxRig } from "../sandbox/rig.ts";
import { LoopDisk, noSlowDisk } from "../support/loop-disk.ts";

const counted = z.object({ memory: z.number(), hostname: z.string() });
const inNewImages = { direct: false, keepConnections: false };
const noSlow = noSlowDisk();

let rig: SandboxRig;
beforeAll(async () => {
  rig = await openRig();
});
afterAll(() => rig.close());

/** An image of a counter that has counted to two, started elsewhere under another name. */
async function counterImage(name: string, change: (place: Place) => void = () => undefined): Promise<string> {
  const place = await rig.place("counter", { memoryMiB: 64 });
  change(place);
  await rig.start(place);
  await answer(place, "GET", "/");
  const imageDir = await rig.imageDir(name);
  await rig.runtime.pause(place.spec.id);
  await rig.runtime.checkpoint(place.spec.id, imageDir, { direct: false });
  await rig.runtime.delete(place.spec.id);
  return imageDir;
}

describe("a sandbox that was created before it was known for whom", () => {
  it("becomes the restored program's: its memory, host name, environment and output", async () => {
    const imageDir = await counterImage("warm");
    const place = await rig.place("counter", { memoryMiB: 64 });
    const stdoutPath = join(rig.dir, "stdout-of-the-actor");
    await rig.runtime.create({ ...place.spec, hostname: "nobody", env: [] });
    await place.putAddress();
    const spec = { ...place.spec, hostname: "somebody", env: ["PATH=/", "OF=somebody"], stdoutPath };
    await rig.runtime.restore(spec, { imageDir, ...inNewImages, created: true });
    expect(counted.parse(JSON.parse(await answer(place, "GET", "/")))).toMatchObject({
      memory: 3,
      hostname: "somebody",
    });
    await rig.runtime.waitRestored(spec.id);
    const state = await readFile(join(rig.dir, "rt", "s", `${spec.id}_sandbox:${spec.id}.state`), "utf8");
    // what `runsc exec` gives to programs
    expect(state).toContain("OF=somebody");
    const { sandbox } = await rig.runtime.pids(spec.id);
    const open = execFileSync("ls", ["-l", `/proc/${sandbox}/fd`], { encoding: "utf8" });
    expect(open).toContain(stdoutPath);
    expect(open).not.toContain(place.spec.stdoutPath);
    await rig.runtime.delete(spec.id);
  });

  it("sees the volume that is bound to its place later, and is not restored without it", async () => {
    const mounts = new OverlayMounts();
    const shared = join(rig.dir, "shared");
    await mkdir(join(shared, "a"), { recursive: true });
    await mkdir(join(shared, "b"));
    await mkdir(join(rig.dir, "rootfs", "data"));
    await mounts.share(shared);
    const volume = join(rig.dir, "volume");
    await mkdir(volume);
    execFileSync("mount", ["-t", "tmpfs", "tmpfs", volume]);
    try {
      const data = { source: volume, destination: "/data" };
      const imageDir = await counterImage("with-volume", ({ spec }) => {
        spec.volumes = [data];
        spec.env = ["PATH=/", "COUNTER_FILE=/data/count"];
      });
      const place = await rig.place("counter", { memoryMiB: 64 });
      const spec = { ...place.spec, volumes: [{ ...data, source: join(shared, "a") }] };
      await rig.runtime.create(spec);
      await place.putAddress();
      await mounts.bind(volume, join(shared, "a"));
      await rig.runtime.restore(spec, { imageDir, ...inNewImages, created: true });
      await answer(place, "GET", "/");
      await rig.runtime.delete(spec.id);
      await mounts.unmount(join(shared, "a"));

      const other = await rig.place("counter", { memoryMiB: 64 });
      const without = { ...other.spec, volumes: [{ ...data, source: join(shared, "b") }] };
      await rig.runtime.create(without);
      await expect(rig.runtime.restore(without, { imageDir, ...inNewImages, created: true })).rejects.toMatchObject({
        code: "RESTORE_FAILED",
        message: expect.stringContaining("does not see") as string,
      });
      expect(await rig.runtime.list()).toEqual([]);
    } finally {
      execFileSync("umount", [volume]);
      await mounts.unmount(shared);
      await mounts.close();
    }
  });
});

describe.skipIf(noSlow !== undefined)(`an image that is cut while its memory loads ${noSlow ?? ""}`, () => {
  it("ends the sandbox, which has answered by then, and the load says so", async () => {
    const disk = LoopDisk.mount(join(rig.dir, "slow"), 2 ** 30);
    try {
      const place = await rig.place("glutton", { memoryMiB: 400 });
      await rig.start(place);
      await answer(place, "POST", "/hold?mib=200&kind=random");
      const imageDir = join(disk.folder, "image");
      await mkdir(imageDir);
      await rig.runtime.pause(place.spec.id);
      await rig.runtime.checkpoint(place.spec.id, imageDir, { direct: false });
      await rig.runtime.delete(place.spec.id);
      execFileSync("sync", ["-f", imageDir]);
      disk.slow(40e6);
      await rig.cgroups.create(place.spec.id);
      await place.putAddress();
      // around the cache, so that it must read what is about to be cut
      await rig.runtime.restore(place.spec, { imageDir, direct: true, keepConnections: false });
      await answer(place, "GET", "/");
      await truncate(join(imageDir, "pages.img"), 2 ** 20);
      await expect(rig.runtime.waitRestored(place.spec.id)).rejects.toMatchObject({ code: "RESTORE_FAILED" });
      await expect.poll(() => rig.runtime.alive(place.spec.id)).toBe(false);
      await rig.runtime.delete(place.spec.id);
    } finally {
      await disk.remove();
    }
  });
});
