import { stat } from "node:fs/promises";
import { type Actor } from "@substrate/atelet/actors/actor.ts";
import { noEnvironment } from "@substrate/atelet/actors/environment.ts";
import { clusterUid } from "@substrate/atelet/actors/test-node.ts";
import { Trials } from "@substrate/atelet/actors/trial.ts";
import { afterAll, beforeAll, expect, it } from "vitest";
import { eventually } from "../support/poll.ts";
import { type Counts, key, program, VolumesRig } from "./rig.ts";

let rig: VolumesRig;
let actor: Actor;
beforeAll(async () => {
  rig = await VolumesRig.open();
});
afterAll(async () => {
  await rig.close();
});

/** What a program that was never restarted has counted. */
function all(count: number): Partial<Counts> {
  return { memory: count, ...files(count), root: count };
}

function files(count: number): Partial<Counts> {
  return { log: count, mapped: count, inFile: count, rows: count, turns: count };
}

it("a trial of a program with a volume leaves nothing mounted", async () => {
  const { readyMs } = await new Trials(rig.node.context).run({ program: program(), environment: noEnvironment });
  expect(readyMs).toBeGreaterThan(0);
  expect(await rig.mounted()).toEqual([]);
});

it("an append handle, a mapped file, a journal, renamed folders and a file without a name go on over 13 suspends", async () => {
  actor = await rig.assign();
  await actor.resume();
  const { pid } = await rig.ask(actor, "GET", "/");
  await rig.ask(actor, "POST", "/unlinked");
  for (let count = 2; count <= 14; count += 1) {
    await rig.suspend(actor);
    expect((await rig.mounted()).filter((target) => target.endsWith("/mnt"))).toEqual([]);
    await actor.resume();
    expect(await rig.ask(actor, "GET", "/")).toMatchObject({ ...all(count), pid, unlinked: count - 1 });
  }
  // layers were made one meanwhile: that many would be here otherwise
  await eventually(
    async () => {
      expect((await rig.layers("node")).length).toBeLessThan(10);
    },
    { deadlineMs: 10_000 },
  );
});

it("goes on where the atelet was killed, its overlay in place", async () => {
  const before = await rig.mounted();
  await rig.start("node");
  actor = rig.actors.get(key.uid);
  expect(actor.state).toBe("RUNNING");
  expect((await rig.mounted()).filter((target) => before.includes(target))).toHaveLength(1);
  expect(await rig.ask(actor, "GET", "/")).toMatchObject(all(15));
  await rig.suspend(actor);
  await rig.start("node");
  actor = rig.actors.get(key.uid);
  await actor.resume();
  expect(await rig.ask(actor, "GET", "/look")).toMatchObject(all(15));
});

it("a crash takes memory and volume back to the same moment", async () => {
  await rig.suspend(actor);
  await actor.resume();
  expect(await rig.ask(actor, "GET", "/")).toMatchObject(all(16));
  await rig.kill(actor);
  await eventually(
    () => {
      expect(actor.state).toBe("CRASHED");
    },
    { deadlineMs: 10_000 },
  );
  expect(actor.record.crash?.message).toContain("its volumes with it");
  await eventually(() => actor.resume(), { deadlineMs: 10_000 });
  expect(await rig.ask(actor, "GET", "/look")).toMatchObject(all(15));
});

it("comes back whole on a node that has nothing of it", async () => {
  await rig.suspend(actor, { mode: "SYNC" });
  const generation = actor.generations.newest();
  expect(generation?.storage.state).toBe("COMPLETED");
  await rig.start("other");
  // not the next epoch: the head decides
  await rig.assign();
  actor = await rig.assign();
  await actor.resume();
  expect(await rig.ask(actor, "GET", "/")).toMatchObject(all(16));
  expect(await rig.layers("other")).toEqual(["1", "2"]);
});

it("fidelity Data: the program is told to end, and starts cold with its volume", async () => {
  await rig.suspend(actor, { fidelity: "Data" });
  expect(actor.generations.newest()).toMatchObject({ fidelity: "Data", sizeBytes: 0 });
  await actor.resume();
  expect(await rig.ask(actor, "GET", "/look")).toMatchObject({ memory: 0, root: 0, ended: 1, ...files(16) });
  expect(await rig.ask(actor, "GET", "/")).toMatchObject({ memory: 1, root: 1, ...files(17) });
});

it("a crash after a cold start keeps the volume as it was, and the actor on its node until that is saved", async () => {
  await rig.kill(actor);
  await eventually(
    () => {
      expect(actor.state).toBe("CRASHED");
    },
    { deadlineMs: 10_000 },
  );
  expect(actor.record.crash?.message).toContain("with its volumes as they are");
  await expect(rig.actors.release(key, rig.epoch, { deleting: false, clusterUid })).rejects.toMatchObject({
    code: "NOT_RELEASABLE",
    message: expect.stringContaining("its volumes hold what no snapshot has") as string,
  });
  await eventually(() => actor.resume(), { deadlineMs: 10_000 });
  expect(await rig.ask(actor, "GET", "/look")).toMatchObject({ memory: 0, ...files(17) });
});

it("fidelity Rootfs: starts cold with its files; its memory can be saved again afterwards, also elsewhere", async () => {
  await rig.ask(actor, "GET", "/");
  await rig.suspend(actor, { fidelity: "Rootfs", mode: "SYNC" });
  await actor.resume();
  expect(await rig.ask(actor, "GET", "/")).toMatchObject({ memory: 1, root: 2, ...files(19) });
  await rig.suspend(actor, { mode: "SYNC" });
  await actor.resume();
  expect(await rig.ask(actor, "GET", "/look")).toMatchObject({ memory: 1, root: 2, ...files(19) });
  await rig.suspend(actor, { mode: "SYNC" });
  await rig.start("third");
  await rig.assign();
  actor = await rig.assign({ volumeMounts: [{ name: "data", mountPath: "/data", sizeLimitBytes: 8 * 2 ** 20 }] });
  await actor.resume();
  expect(await rig.ask(actor, "GET", "/")).toMatchObject({ memory: 2, root: 3, ...files(20) });
});

it("a volume above its limit is not saved: the actor is stopped, and goes on from before", async () => {
  await rig.ask(actor, "POST", "/fill?mib=9");
  await expect(rig.suspend(actor)).rejects.toMatchObject({ message: expect.stringContaining("sizeLimit") as string });
  expect(actor.state).toBe("CRASHED");
  expect(actor.record.crash?.message).toMatch(/volume data holds 9\.\d MiB, more than its sizeLimit of 8\.0 MiB/);
  expect(actor.volumeUsage()).toMatchObject([{ name: "data", limitBytes: 8 * 2 ** 20 }]);
  await eventually(() => actor.resume(), { deadlineMs: 10_000 });
  expect(await rig.ask(actor, "GET", "/look")).toMatchObject(files(19));
});

it("leaves nothing behind when it is deleted while it runs", async () => {
  const { dir } = actor.files;
  await rig.actors.release(key, rig.epoch, { deleting: true, clusterUid });
  expect(await rig.mounted()).toEqual([]);
  await expect(stat(dir)).rejects.toMatchObject({ code: "ENOENT" });
});
