import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { rawCreate, rawEnd, rawLoaded, rawRestore, rawSuspend } from "../raw.ts";
import { gluttonTemplate } from "../template.ts";
import { heldMib, label } from "./held.ts";
import { type Plan, type Row, rounds } from "./plan.ts";

export interface StoredKeys {
  /** 1,000 MiB, 5 % of its pages changed since the last one, over an async suspend after the same change. */
  syncDeltaOverAsync: number;
  /** First suspend of random memory through a link of 100 MiB/s: bytes sent a second, over those of a plain client. */
  uploadOverPlain: number;
  /** CPU of the atelet, all threads, for that. */
  uploadCpuSecondsPerGiB: number;
  /** Through the same link: over a plain parallel download and a raw restore. */
  storeResumeOverPlain: number;
  /** Time that 20 ms of round trip add to a resume of 1,000 MiB from the store, in round trips. */
  storeResumeRttFactor: number;
}

const MIB_PER_SECOND = 100;
const RTT_MS = 20;
/** The aims say so: single pairs differ by more than what is looked for. */
const RTT_PAIRS = 7;
const LARGE_MIB = 1000;
const CHANGED_MIB = LARGE_MIB / 20;

/** Sync suspends and resumes from the store. */
export async function stored(plan: Plan): Promise<{ keys: StoredKeys; rows: Row[] }> {
  const { samples, quick, parts } = plan;
  await parts.run("5 % changed", (endMs) => delta(plan, endMs));
  await parts.run("through a link", (endMs) => throughLink(plan, quick ? LARGE_MIB / 2 : LARGE_MIB, endMs));
  await parts.run("round trips", (endMs) => roundTrips(plan, endMs));
  const sizes = heldMib(quick);
  await parts.run("stored first", (endMs) => fresh(plan, sizes, endMs));

  return {
    rows: sizes.map((mib) => ({
      held: label({ mib, kind: "random" }),
      rounds: samples.of(`sync ${mib} MiB`).length,
      suspendSync: samples.spread(`sync ${mib} MiB`),
      plainUpload: samples.spread(`plain upload ${mib} MiB`),
      resumeStore: samples.spread(`store resume ${mib} MiB`),
      plainDownload: samples.spread(`plain download ${mib} MiB`),
    })),
    keys: {
      syncDeltaOverAsync: samples.median("sync after 5 % changed") / samples.median("async after 5 % changed"),
      uploadOverPlain: samples.median("link upload MiB/s") / samples.median("link plain upload MiB/s"),
      uploadCpuSecondsPerGiB: samples.median("link upload CPU s/GiB"),
      storeResumeOverPlain:
        samples.median("link store resume") /
        (samples.median("link plain download") + samples.median("link raw restore")),
      storeResumeRttFactor: samples.median("added by 20 ms") / RTT_MS,
    },
  };
}

/** Two actors of the same size, one suspended async and one sync, in turn, after the same change. */
async function delta({ ground, samples, signal, say }: Plan, endMs: number): Promise<void> {
  const { product, image } = ground;
  const subjects = [
    { name: "delta-async", mode: "Async", what: "async after 5 % changed" },
    { name: "delta-sync", mode: "Sync", what: "sync after 5 % changed" },
  ] as const;
  for (const { name } of subjects) {
    await product.make({ name, mib: LARGE_MIB, kind: "random" }, image, { detachDelay: "10m", store: "direct" });
    // what it changes against
    await product.suspend(name, "Sync");
    await product.touch(name);
  }
  await rounds({ count: 7, endMs, signal }, async (round) => {
    for (const { name, mode, what } of round % 2 === 0 ? subjects : subjects.toReversed()) {
      await product.request(name, "POST", `/churn?mib=${CHANGED_MIB}&kind=random`);
      ground.level(LARGE_MIB);
      samples.add(what, await product.suspend(name, mode));
      await product.touch(name);
    }
  });
  for (const { name, what } of subjects) {
    await product.remove(name);
    say(`${LARGE_MIB} MiB, ${what}: ${samples.spread(what)} ms`);
  }
}

/** A new actor in every round: the first time that its memory is stored. Then it comes back from there. */
async function throughLink(plan: Plan, mib: number, endMs: number): Promise<void> {
  const { ground, samples, signal, say } = plan;
  const { product, image, link, plain, rig } = ground;
  const raw = await ground.raw({ mib, kind: "random" });
  const rawImage = join(rig.dir, "link-image");
  await mkdir(rawImage);
  await rawSuspend(raw.sandbox, rawImage);
  await product.template(gluttonTemplate("link", image, { detachDelay: "0s", store: "link", memoryMib: mib + 300 }));
  await link.shape({ mibPerSecond: MIB_PER_SECOND, delayMs: 0 });
  await rounds({ count: 5, endMs, signal }, async (round) => {
    const name = `link-${round}`;
    await product.actor(name, "link");
    await product.hold({ name, mib, kind: "random" });
    samples.add("link plain upload MiB/s", (mib / (await plain.upload(mib, link.port))) * 1000);
    ground.level(mib);
    const before = { sentBytes: await link.carriedUpBytes(), cpuSeconds: ground.ateletCpuSeconds() };
    const uploadMs = await product.suspend(name, "Sync");
    const sentMib = ((await link.carriedUpBytes()) - before.sentBytes) / 2 ** 20;
    samples.add("link sync suspend", uploadMs);
    samples.add("link upload MiB/s", (sentMib / uploadMs) * 1000);
    samples.add("link upload CPU s/GiB", ((ground.ateletCpuSeconds() - before.cpuSeconds) / sentMib) * 1024);
    samples.add("link plain download", await plain.download(mib, link.port));
    await rawCreate(raw.sandbox);
    samples.add("link raw restore", await rawRestore(raw.sandbox, rawImage, { background: true }));
    await rawLoaded(raw.sandbox);
    await rawEnd(raw.sandbox);
    await product.detached(name);
    samples.add("link store resume", await product.resume(name));
    await product.touch(name);
    await product.removeActor(name);
  });
  await link.shape({ mibPerSecond: 0, delayMs: 0 });
  await raw.close();
  await rm(rawImage, { recursive: true });
  for (const what of ["link upload MiB/s", "link plain upload MiB/s", "link store resume", "link plain download"]) {
    say(`${mib} MiB, ${what}: ${samples.spread(what)}`);
  }
}

/** 1,000 MiB from the store, with and without 20 ms of round trip, in pairs; and the plain client's, likewise. */
async function roundTrips({ ground, samples, quick, signal, say }: Plan, endMs: number): Promise<void> {
  const { product, image, link, plain } = ground;
  const name = "rtt";
  await product.make({ name, mib: LARGE_MIB, kind: "random" }, image, { detachDelay: "0s", store: "link" });
  await plain.upload(LARGE_MIB, link.port);
  const away = async (delayMs: number, work: () => Promise<number>): Promise<number> => {
    await link.shape({ mibPerSecond: 0, delayMs });
    const ms = await work();
    await link.shape({ mibPerSecond: 0, delayMs: 0 });
    return ms;
  };
  const resume = async (delayMs: number): Promise<number> => {
    await product.suspend(name, "Sync");
    await product.detached(name);
    const ms = await away(delayMs, () => product.resume(name));
    await product.touch(name);
    return ms;
  };
  // the first one stores all of it
  await resume(0);
  await rounds({ count: RTT_PAIRS, endMs, signal }, async (round) => {
    const times = new Map<number, number>();
    for (const delayMs of round % 2 === 0 ? [0, RTT_MS] : [RTT_MS, 0]) {
      times.set(delayMs, await resume(delayMs));
      if (quick && round > 0) continue;
      const what = delayMs === 0 ? "plain download, near" : "plain download, 20 ms away";
      samples.add(what, await away(delayMs, () => plain.download(LARGE_MIB, link.port)));
    }
    const [near = NaN, far = NaN] = [times.get(0), times.get(RTT_MS)];
    samples.add("store resume, near", near);
    samples.add("store resume, 20 ms away", far);
    samples.add("added by 20 ms", far - near);
  });
  await product.remove(name);
  say(`${LARGE_MIB} MiB from the store, added by 20 ms: ${samples.spread("added by 20 ms")} ms`);
}

/** Memory that is stored for the first time, and back from there, at the speed of the store; the sizes take turns. */
async function fresh(plan: Plan, sizes: readonly number[], endMs: number): Promise<void> {
  const { ground, samples, signal, say } = plan;
  const { product, image, plain, serverPort } = ground;
  const options = { detachDelay: "0s", store: "direct" };
  for (const mib of sizes)
    await product.template(gluttonTemplate(`fresh-${mib}`, image, { ...options, memoryMib: mib + 300 }));
  await rounds({ count: 5, endMs, signal }, async (round) => {
    for (const mib of sizes) {
      const name = `fresh-${mib}-${round}`;
      await product.actor(name, `fresh-${mib}`);
      await product.hold({ name, mib, kind: "random" });
      ground.level(mib);
      samples.add(`sync ${mib} MiB`, await product.suspend(name, "Sync"));
      await product.detached(name);
      samples.add(`plain upload ${mib} MiB`, await plain.upload(mib, serverPort));
      samples.add(`plain download ${mib} MiB`, await plain.download(mib, serverPort));
      samples.add(`store resume ${mib} MiB`, await product.resume(name));
      await product.touch(name);
      await product.removeActor(name);
    }
  });
  for (const mib of sizes) {
    const cells = ["sync", "store resume"].map((what) => `${what} ${samples.spread(`${what} ${mib} MiB`)}`);
    say(`${mib} MiB, first time: ${cells.join("  ")} ms`);
  }
}
