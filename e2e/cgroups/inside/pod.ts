import { deepStrictEqual, match, ok, rejects, strictEqual } from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { freeBytes } from "@substrate/atelet/cgroups/cgroups.ts";
import { enterSupervisorLeaf } from "@substrate/atelet/cgroups/supervisor-leaf.ts";

import { MemoryLedger } from "@substrate/atelet/ledger/ledger.ts";

import { type Place, SandboxRig } from "../../sandbox/rig.ts";
import { eventually } from "../../support/poll.ts";
import { Checks } from "./checks.ts";
import { insidePaths } from "./place.ts";

const mib = 2 ** 20;
const heldMiB = 12;
/** More than may be in memory of snapshots for which nothing was lent. */
const unlentMiB = 100;
const limitMiB = 192;
/** An emulated machine is slow: a checkpoint takes it some ten seconds. */
const slowMs = 90_000;
const root = "/sys/fs/cgroup";

/** What the pod's limit is in every series. */
export const podLimitBytes = 600 * mib;

const control = (group: string, file: string): string => readFileSync(join(root, group, file), "utf8").trim();
const groups = (group: string): string[] =>
  readdirSync(join(root, group), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();

async function ask(place: Place, method: "GET" | "POST", path: string): Promise<string> {
  const response = await fetch(place.url + path, { method, signal: AbortSignal.timeout(slowMs) });
  strictEqual(response.status, 200);
  return response.text();
}

const openRig = (cgroupParent: string): Promise<SandboxRig> =>
  SandboxRig.open({ runsc: insidePaths.runsc, programs: insidePaths.programs, cgroupParent });

/** A new folder for an image, on the machine's disk and not in memory. */
async function diskDir(name: string): Promise<string> {
  const dir = join(insidePaths.shared, `image-${name}`);
  await mkdir(dir);
  return dir;
}

/** What every way of being started has: the leaf, the pod's limit, a sandbox with its limits, nothing left of it. */
export async function shortSeries(series: string, parent: string, group: string): Promise<void> {
  const checks = new Checks(series);
  await checks.check("the supervisor moves into a leaf and gives controllers to actors", () => {
    enterSupervisorLeaf(parent);
    strictEqual(control(group, "cgroup.procs"), "");
    ok(control(`${group}/supervisor`, "cgroup.procs").split("\n").includes(String(process.pid)));
    for (const name of ["cpu", "cpuset", "io", "memory", "pids"]) {
      ok(control(group, "cgroup.subtree_control").split(" ").includes(name), `${name} is given to children`);
    }
    strictEqual(control(group, "memory.oom.group"), "0");
    // again, as after a restart of the container's first process in the same group
    enterSupervisorLeaf(parent);
  });
  await checks.check("a sandbox has the limits of its actor", async () => {
    const rig = await openRig(parent);
    strictEqual((await rig.cgroups.pod()).limitBytes, podLimitBytes);
    const place = await rig.place("counter", { memoryMiB: 64 });
    await rig.start(place);
    await checkLimits(rig, place);
    await rig.close();
    deepStrictEqual(groups(group), ["supervisor"]);
  });
}

async function checkLimits(rig: SandboxRig, { spec }: Place): Promise<void> {
  strictEqual(control(spec.cgroupPath, "memory.max"), String(spec.memoryLimitBytes));
  strictEqual(control(spec.cgroupPath, "cpu.max"), "100000 100000");
  strictEqual(control(spec.cgroupPath, "pids.max"), "4096");
  const memory = await rig.cgroups.actor(spec.id);
  strictEqual(memory.limitBytes, spec.memoryLimitBytes);
  ok(memory.usageBytes > 8 * mib, `${memory.usageBytes} bytes are charged to it`);
  ok((await rig.cgroups.pod()).usageBytes >= memory.usageBytes, "the pod's use counts it");
  ok((await rig.cgroups.cpuNs(spec.id)) > 0n);
  const hit = await rig.cgroups.limitsHit(spec.id);
  ok(!hit.memory && hit.processes === undefined && hit.mostProcesses > 0, JSON.stringify(hit));
}

/** A pod's life: suspend with the pages of the image charged elsewhere, undone and done, resume, out of memory, removal. */
export async function podSeries(): Promise<void> {
  await shortSeries("a pod", "/", "");
  const checks = new Checks("an actor in a pod");
  const rig = await openRig("/");
  let place: Place | undefined;
  const actor = (): Place => {
    if (place === undefined) throw new Error("it was not started");
    return place;
  };
  let digest = "";

  await checks.check("starts and holds memory", async () => {
    place = await rig.place("glutton", { memoryMiB: limitMiB });
    await rig.start(place);
    await ask(place, "POST", `/hold?mib=${heldMiB}&kind=random`);
    digest = await ask(place, "GET", "/digest");
  });
  await checks.check(
    "is moved away, checkpointed without being charged for the image, moved back and goes on",
    async () => {
      const { id, cgroupPath } = actor().spec;
      const before = await rig.cgroups.actor(id);
      const processes = control(cgroupPath, "cgroup.procs").split("\n").length;
      await rig.runtime.pause(id);
      await rig.cgroups.moveToSnapshots(id, { lent: true });
      strictEqual(control(cgroupPath, "cgroup.procs"), "");
      strictEqual(control(`snapshots/${id}`, "cgroup.procs").split("\n").length, processes);
      deepStrictEqual(await rig.cgroups.list(), [id]);
      const size = await rig.runtime.checkpoint(id, await rig.imageDir("undone"), { direct: false });
      ok(size > heldMiB * mib, `the image has ${size} bytes`);
      const after = await rig.cgroups.actor(id);
      ok(after.cleanCacheBytes + after.dirtyBytes + after.writebackBytes < 4 * mib, JSON.stringify(after));
      ok(after.usageBytes < before.usageBytes + (heldMiB / 2) * mib, `${before.usageBytes} → ${after.usageBytes}`);
      const sibling = Number(control("snapshots", "memory.current"));
      ok(sibling > (heldMiB / 2) * mib, `snapshots has ${sibling} bytes`);
      await rig.runtime.resume(id);
      await rig.cgroups.moveBack(id);
      strictEqual(control(cgroupPath, "cgroup.procs").split("\n").length, processes);
      deepStrictEqual(groups("snapshots"), []);
      await rig.cgroups.moveBack(id);
      strictEqual(await ask(actor(), "GET", "/digest"), digest);
    },
  );
  await checks.check("without a loan, is slowed down at a bound of its own and not killed", async () => {
    const { id } = actor().spec;
    await ask(actor(), "POST", `/hold?mib=${unlentMiB}&kind=random`);
    digest = await ask(actor(), "GET", "/digest");
    await rig.runtime.pause(id);
    const { direct } = await rig.cgroups.moveToSnapshots(id, { lent: false });
    strictEqual(direct, false);
    strictEqual(control(`unlent/${id}`, "cgroup.procs") === "", false);
    const high = Number(control("unlent", "memory.high"));
    ok(high < unlentMiB * mib, `${high} bytes are less than the image has`);
    // on the disk: what is written to a tmpfs can never be dropped
    const size = await rig.runtime.checkpoint(id, await diskDir("unlent"), { direct });
    ok(size > unlentMiB * mib, `the image has ${size} bytes`);
    const events = control("unlent", "memory.events");
    match(events, /^high [1-9]/m);
    match(events, /^oom_kill 0$/m);
    const { dirtyBytes, writebackBytes } = await rig.cgroups.snapshots();
    ok(dirtyBytes + writebackBytes <= high, `${dirtyBytes} dirty and ${writebackBytes} written back of ${high}`);
    await rig.runtime.resume(id);
    await rig.cgroups.moveBack(id);
    deepStrictEqual(groups("unlent"), []);
    strictEqual(await ask(actor(), "GET", "/digest"), digest);
  });
  await checks.check("is suspended with a loan that the ledger has room for by the kernel's numbers", async () => {
    const { id, memoryLimitBytes } = actor().spec;
    const pod = await rig.cgroups.pod();
    ok(pod.limited);
    const ledger = new MemoryLedger({ limitBytes: pod.limitBytes, reserveBytes: 128 * mib });
    const booking = ledger.adopt(memoryLimitBytes);
    const free = async () => freeBytes(await rig.cgroups.pod());
    const { shmemBytes } = await rig.cgroups.actor(id);
    ok(shmemBytes > unlentMiB * mib, `${shmemBytes} bytes of memory are in the image`);
    strictEqual(await ledger.borrow(pod.limitBytes, free, { withinMs: 0 }), undefined);
    const loan = await ledger.borrow(shmemBytes + 32 * mib, free, { withinMs: 0 });
    ok(loan !== undefined, `nothing is lent of ${await free()} bytes that are free`);
    await rig.runtime.pause(id);
    await rig.cgroups.moveToSnapshots(id, { lent: true });
    match(control("snapshots", "memory.high"), /^max$/);
    await rig.runtime.checkpoint(id, await diskDir("lent"), { direct: false });
    const { dirtyBytes, writebackBytes } = await rig.cgroups.snapshots();
    ok(dirtyBytes + writebackBytes <= loan.bytes, `${dirtyBytes} + ${writebackBytes} of ${loan.bytes} lent`);
    await rig.runtime.resume(id);
    await rig.cgroups.moveBack(id);
    loan.return();
    booking.free();
    strictEqual(ledger.state().unbookedBytes, pod.limitBytes - 128 * mib);
  });
  await checks.check("is suspended and leaves no group", async () => {
    const { id } = actor().spec;
    await rig.runtime.pause(id);
    await rig.cgroups.moveToSnapshots(id, { lent: true });
    await rig.runtime.checkpoint(id, await rig.imageDir("kept"), { direct: false });
    await rig.runtime.delete(id);
    await rig.cgroups.remove(id);
    const left = ["actors", "snapshots", "unlent"].flatMap(groups);
    deepStrictEqual([left, await rig.cgroups.list()], [[], []]);
  });
  await checks.check("is restored without a quota of CPU, then has it, and its memory", async () => {
    const { spec } = actor();
    await rig.cgroups.create(spec.id);
    await actor().putAddress();
    await rig.runtime.restore(spec, {
      imageDir: join(rig.dir, "image-kept"),
      direct: false,
      keepConnections: false,
    });
    await rig.runtime.waitRestored(spec.id);
    match(control(spec.cgroupPath, "cpu.max"), /^max /);
    await rig.cgroups.limitCpu(spec.id, 1500);
    strictEqual(control(spec.cgroupPath, "cpu.max"), "150000 100000");
    strictEqual((await rig.cgroups.actor(spec.id)).limitBytes, spec.memoryLimitBytes);
    strictEqual(await ask(actor(), "GET", "/digest"), digest);
  });
  await checks.check("is killed alone at its memory limit, which is told", async () => {
    const { id } = actor().spec;
    await rejects(ask(actor(), "POST", "/oom"));
    await eventually(
      async () => {
        ok((await rig.cgroups.limitsHit(id)).memory, control(`actors/${id}`, "memory.events"));
        strictEqual(await rig.runtime.alive(id), false);
      },
      { deadlineMs: slowMs },
    );
    await rig.runtime.delete(id);
    await rig.cgroups.remove(id);
    deepStrictEqual(await rig.cgroups.list(), []);
  });
  await checks.check("has a group again only when what was left in it has been killed", async () => {
    const id = "0".repeat(32);
    mkdirSync(join(root, "actors", id), { recursive: true });
    const left = spawn("/bin/busybox", ["sleep", "600"]);
    const ended = once(left, "exit");
    writeFileSync(join(root, "actors", id, "cgroup.procs"), String(left.pid));
    await rig.cgroups.create(id);
    await ended;
    deepStrictEqual(groups("actors"), []);
  });
  await checks.check("is outlived by nothing", async () => {
    await rig.close();
    deepStrictEqual(groups(""), ["supervisor"]);
  });
  writeFileSync(join(insidePaths.shared, "pod-ready"), "");
  // the machine execs into it now, as `kubectl exec` and exec probes do
  await eventually(
    () => {
      if (!existsSync(join(insidePaths.shared, "pod-end"))) throw new Error("nothing was done in the pod from outside");
      return Promise.resolve();
    },
    { deadlineMs: 120_000 },
  );
}
