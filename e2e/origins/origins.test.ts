import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { readdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { type Actor } from "@substrate/atelet/actors/actor.ts";
import { noEnvironment } from "@substrate/atelet/actors/environment.ts";
import { type Origin } from "@substrate/atelet/actors/record.ts";
import { assignment, clusterUid, snapshotPrefix } from "@substrate/atelet/actors/test-node.ts";
import { afterAll, beforeAll, expect, it } from "vitest";
import { eventually } from "../support/poll.ts";
import { program, VolumesRig } from "../volumes/rig.ts";

interface Reply {
  memory: number;
  file: number;
  pid: number;
  actor: string;
  generation: string;
  hostname: string;
  startedAt: string;
  copy: string;
  random: number;
}

const counter = program({
  command: ["/counter"],
  memoryBytes: 32 * 2 ** 20,
  volumeMounts: [],
  readyz: { path: "/readyz", port: 8080 },
});

let rig: VolumesRig;
beforeAll(async () => {
  rig = await VolumesRig.open();
});
afterAll(async () => {
  await rig.close();
});

const golden = snapshotPrefix("golden");
const tag = snapshotPrefix("tag");
const quiet = snapshotPrefix("quiet");

async function assign(name: string, origin: Pick<Origin, "stored" | "golden">): Promise<Actor> {
  const actor = { uid: randomUUID(), namespace: "default", name, namespaceUid: "n" };
  const grant = { epoch: 1, session: rig.node.session };
  const changes = { actor, program: counter, origin: { ...origin, floor: 0, chosen: false } };
  await rig.actors.assign(assignment(grant, changes));
  return rig.actors.get(actor.uid);
}

async function ask(actor: Actor, path = "/"): Promise<Reply> {
  const { nodeAddress } = rig.network.adopt(actor.slotIndex ?? 0);
  const response = await fetch(`http://${nodeAddress}:8080${path}`, { signal: AbortSignal.timeout(10_000) });
  expect(response.status).toBe(200);
  return (await response.json()) as Reply;
}

const suspend = (actor: Actor) =>
  actor.suspend({
    operationId: randomUUID(),
    mode: "SYNC",
    force: false,
    targetGeneration: (actor.generations.newest()?.generation ?? 0) + 1,
  });
const inStore = (uid: string): boolean => existsSync(join(rig.dir, "store", clusterUid, "n", uid));

let first: Actor;

it("two actors begin from one golden snapshot, each as itself", async () => {
  const trial = await rig.node.trials.run({ program: counter, environment: noEnvironment, golden });
  expect(trial.goldenFailure).toBeUndefined();
  first = await assign("one", { stored: golden, golden: true });
  const second = await assign("two", { stored: golden, golden: true });
  await Promise.all([first.resume(), second.resume()]);
  const [one, two] = [await ask(first), await ask(second)];
  expect(one).toMatchObject({ memory: 1, file: 1, actor: "one", hostname: "one", generation: "0" });
  expect(two).toMatchObject({
    memory: 1,
    file: 1,
    actor: "two",
    hostname: "two",
    startedAt: one.startedAt,
    pid: one.pid,
  });
  expect(first.record.sandbox?.cold).toBe(false);
  // The program hears of the restore and makes its random numbers anew.
  await eventually(
    async () => {
      const replies = [await ask(first), await ask(second)];
      expect(new Set(replies.map(({ copy }) => copy)).size).toBe(2);
      expect(new Set(replies.map(({ random }) => random)).size).toBe(2);
    },
    { deadlineMs: 20_000 },
  );
  await suspend(first);
  await suspend(second);
  expect(first.generations.newest()?.generation).toBe(1);
  await first.resume();
  expect(await ask(first)).toMatchObject({ actor: "one", generation: "1", startedAt: one.startedAt });
});

it("a running program is tagged while a request is open, and goes on", async () => {
  const before = await ask(first);
  const open = ask(first, "/slow?seconds=2");
  const { manifest } = await rig.node.tags.tag({ actor: first.record.actor, epoch: 1, target: tag, operationId: "t" });
  expect(manifest.copyOf?.generation).toBe(2);
  await open;
  const after = await ask(first);
  expect(after.memory).toBeGreaterThan(before.memory);
  expect(after.startedAt).toBe(before.startedAt);
});

it("ten forks at once begin from one copy of a tag, and are in nobody's way", async () => {
  // One of its own: in copies of the other the request that was open ends by itself, and counts, some time later.
  await rig.node.tags.tag({ actor: first.record.actor, epoch: 1, target: quiet, operationId: "q" });
  await rig.node.tags.delete(tag);
  await rig.node.origins.forget("quiet");
  const forks = await Promise.all(
    Array.from({ length: 10 }, (_, index) => assign(`fork-${index}`, { stored: quiet, golden: false })),
  );
  await suspend(first);
  await Promise.all(forks.map((fork) => fork.resume()));
  const replies = await Promise.all(forks.map((fork) => ask(fork)));
  expect(new Set(replies.map(({ memory }) => memory)).size).toBe(1);
  expect(replies.map(({ hostname }) => hostname)).toEqual(forks.map((_, index) => `fork-${index}`));
  expect((await readdir(join(rig.dir, "node", "origins"))).filter((name) => name.startsWith("quiet"))).toEqual([
    "quiet",
  ]);
  const [one, ...others] = forks;
  if (one === undefined) throw new Error("no fork");
  await ask(one);
  await suspend(one);
  await one.resume();
  expect((await ask(one)).memory).toBe((replies[0]?.memory ?? 0) + 2);
  // What was begun is there when the tag is not any more, also the pages that a stored fork shares with it.
  await rig.node.tags.delete(quiet);
  await eventually(
    async () => {
      const left = inStore("quiet") ? await readdir(join(rig.dir, "store", clusterUid, "n", "quiet")) : [];
      expect(left.filter((name) => !["packs", "users", "tombstone"].includes(name))).toEqual([]);
    },
    { deadlineMs: 10_000 },
  );
  for (const fork of others) expect((await ask(fork)).memory).toBeGreaterThan(1);
});

it("deleting needs no store; what is there goes when it is back", async () => {
  const { actor } = first.record;
  expect(inStore(actor.uid)).toBe(true);
  await rename(join(rig.dir, "store"), join(rig.dir, "away"));
  for (const one of rig.actors.all()) await rig.actors.release(one.record.actor, 1, { deleting: true, clusterUid });
  await rig.node.tags.delete(golden);
  expect(await readdir(join(rig.dir, "node", "tombstones"))).not.toEqual([]);
  await rename(join(rig.dir, "away"), join(rig.dir, "store"));
  await rig.start("node");
  await eventually(
    async () => {
      expect(await readdir(join(rig.dir, "node", "tombstones"))).toEqual([]);
    },
    { deadlineMs: 10_000 },
  );
  expect([inStore(actor.uid), inStore("golden")]).toEqual([false, false]);
  expect(await readdir(join(rig.dir, "node", "origins"))).toEqual([]);
});
