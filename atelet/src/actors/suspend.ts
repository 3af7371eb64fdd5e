import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { type Loan } from "../ledger/contract.ts";
import { pagesFile } from "../store/layout.ts";
import { type ActorVolumes } from "../volumes/actor-volumes.ts";
import { ROOTFS_TAR } from "./beginning.ts";
import { type Generations } from "./generations.ts";
import { GrowingTable } from "./growing-table.ts";
import { type NodeContext } from "./node-context.ts";
import { type ActorRecord, type Fidelity, type Generation } from "./record.ts";
import { type Running } from "./running.ts";
import { borrowBytes, follow, largeFile } from "./unwritten.ts";

/** writeback.md: what an image needs beyond the actor's shared memory. */
const IMAGE_MARGIN_BYTES = 32 * 2 ** 20;
/** How long a program may take to end when only its volumes are saved, if its drainTimeout is longer. */
const END_WITHIN_MS = 10_000;
const END_LOOK_MS = 20;

export interface CheckpointOptions {
  node: NodeContext;
  record: ActorRecord;
  running: Running;
  fidelity: Fidelity;
  /** It is stored at once, and somebody waits for that. */
  sync: boolean;
  volumes: ActorVolumes;
  generations: Generations;
  phases: Phases;
  log: Logger;
}

/**
 * design.md §5 steps 1, 3 and 4: slot, loan, pause, image, rename. The sandbox is left paused and blocked when it
 * succeeds, and goes on as before when it fails.
 */
export async function checkpoint(options: CheckpointOptions): Promise<Generation> {
  const { node, phases } = options;
  const queuedMs = performance.now();
  return node.snapshotSlots(async () => {
    phases.add("slotWait", performance.now() - queuedMs);
    if (options.fidelity === "Data") return saveData(options);
    // The changes of a root file system are within the sandbox's memory, too: that much is lent for either.
    const loan = await phases.run("borrow", () =>
      borrow({ node, sandboxId: options.running.sandboxId, log: options.log }),
    );
    let generation: Generation;
    try {
      generation = await writeImage(options, loan);
    } catch (error) {
      loan?.return();
      throw error;
    }
    if (loan !== undefined) {
      follow(node, largeFile(options.generations.path(generation.generation), options.fidelity), loan);
    }
    return generation;
  });
}

/** Room in the page cache for the image of a sandbox; undefined if there is none to lend. */
export async function borrow({
  node,
  sandboxId,
  log,
}: Pick<CheckpointOptions, "node" | "log"> & { sandboxId: string }): Promise<Loan | undefined> {
  const { shmemBytes } = await node.cgroups.actor(sandboxId);
  return borrowBytes(node, shmemBytes + IMAGE_MARGIN_BYTES, log);
}

async function writeImage(options: CheckpointOptions, loan: Loan | undefined): Promise<Generation> {
  const { node, running, generations, phases } = options;
  const { sandboxId } = running;
  const number = (generations.newest()?.generation ?? 0) + 1;
  const dir = await generations.begin(number);
  let table: GrowingTable | undefined;
  try {
    const direct = await phases.run("pause", async () => {
      // The kernel makes who moves processes wait for all cores, some 11 ms: as long as a pause takes anyway.
      const [moved, paused] = await Promise.allSettled([
        node.cgroups.moveToSnapshots(sandboxId, { lent: loan !== undefined }),
        running.cut ? undefined : standStill(node, running),
      ]);
      if (paused.status === "rejected") throw paused.reason;
      if (moved.status === "rejected") throw moved.reason;
      return moved.value.direct;
    });
    // What goes around the page cache could not be read meanwhile.
    if (options.sync && options.fidelity === "Memory" && !direct) {
      const files = { file: join(dir, pagesFile), table: generations.newPageFiles(number).table };
      table = new GrowingTable(node.pages, { ...files, log: options.log });
    }
    await phases.run("checkpoint", async () => {
      if (options.fidelity === "Rootfs") await node.runtime.saveRootfs(sandboxId, join(dir, ROOTFS_TAR));
      // R6: without a loan the write goes around the page cache where its group can't bound it, at disk speed.
      else await node.runtime.checkpoint(sandboxId, dir, { direct });
    });
    const made = table;
    if (made) await phases.run("table", () => made.ready());
    return await phases.run("persist", () => commit(options, number));
  } catch (error) {
    await table?.abandon();
    await undo(options, number, error);
    throw asSubstrateError(error);
  }
}

async function standStill(node: NodeContext, { slot, sandboxId }: Running): Promise<void> {
  await node.network.block(slot);
  await node.runtime.pause(sandboxId);
}

/** From the rename on the volumes as they are now belong to the generation: nothing may be written to them any more. */
function commit(options: CheckpointOptions, number: number): Promise<Generation> {
  const { node, record, running, generations, volumes, fidelity } = options;
  return volumes.exclusive(async () => {
    const generation = await generations.commit({
      generation: number,
      epoch: record.grant.epoch,
      revision: record.program.revision,
      imageDigest: running.imageDigest,
      runtime: node.runtimeBuild,
      fidelity,
      envDigest: record.envDigest,
      rootfsTar: running.rootfsTar,
      createdAtMs: Date.now(),
      volumes: record.volumes.stacks,
    });
    volumes.saved({ generation: number, epoch: record.grant.epoch });
    return generation;
  });
}

/**
 * A generation of the volumes alone: the program is told to end, so that it can leave them as it wants to find them,
 * and is killed when it does not. From then on there is no way back: what fails leaves the actor crashed, its volumes
 * as they are.
 */
async function saveData(options: CheckpointOptions): Promise<Generation> {
  const { node, record, running, generations, phases } = options;
  const { sandboxId } = running;
  const number = (generations.newest()?.generation ?? 0) + 1;
  await generations.begin(number);
  await phases.run("end", async () => {
    // A cut sandbox stands still, and a standing one hears nothing.
    if (!running.cut) {
      await node.runtime.signal(sandboxId, "SIGTERM");
      await ended(options, Math.min(record.program.drainTimeoutMs, END_WITHIN_MS));
    }
    await node.network.block(running.slot);
    await node.runtime.delete(sandboxId);
  });
  return phases.run("persist", () => commit(options, number));
}

async function ended({ node, running, log }: CheckpointOptions, withinMs: number): Promise<void> {
  const endMs = performance.now() + withinMs;
  while (await node.runtime.alive(running.sandboxId)) {
    if (performance.now() > endMs) {
      log.info("the program did not end by itself and is killed", { withinMs });
      return;
    }
    await delay(END_LOOK_MS);
  }
}

/** What a checkpoint has stopped runs again. */
export async function goOn({ node, running }: Pick<CheckpointOptions, "node" | "running">): Promise<void> {
  const { sandboxId } = running;
  await node.cgroups.moveBack(sandboxId);
  if (running.cut) return;
  await node.runtime.resume(sandboxId);
  await node.network.open(running.slot);
}

/** A failed checkpoint leaves the actor running as if nothing had been asked; throws if its sandbox did not survive. */
async function undo(
  { node, running, generations, log }: CheckpointOptions,
  number: number,
  cause: unknown,
): Promise<void> {
  let ended: SubstrateError | undefined;
  try {
    await goOn({ node, running });
  } catch (error) {
    const message = `the checkpoint failed and the sandbox did not survive it: ${asSubstrateError(cause).message}`;
    ended = new SubstrateError("PROGRAM_EXITED", message, { cause: new AggregateError([cause, error]) });
  }
  // Only now: on a broken disk this fails too, and the actor must not stand still for it.
  try {
    await generations.abandon(number);
  } catch (error) {
    log.warn("files of a failed checkpoint could not be removed; the next one, or the next start, does it", {
      generation: number,
      error,
    });
  }
  if (ended !== undefined) throw ended;
}
