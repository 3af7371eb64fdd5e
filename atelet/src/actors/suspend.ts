import { join } from "node:path";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { type Loan } from "../ledger/contract.ts";
import { type Generations } from "./generations.ts";
import { type NodeContext } from "./node-context.ts";
import { type ActorRecord, type Generation } from "./record.ts";
import { type Running } from "./running.ts";

/** writeback.md: what an image needs beyond the actor's shared memory. */
const IMAGE_MARGIN_BYTES = 32 * 2 ** 20;
/** What holds an image's memory; the rest is small. */
const PAGES_FILE = "pages.img";

export interface CheckpointOptions {
  node: NodeContext;
  id: string;
  record: ActorRecord;
  running: Running;
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
    const loan = await phases.run("borrow", () => borrow(options));
    let generation: Generation;
    try {
      generation = await writeImage(options, loan);
    } catch (error) {
      loan?.return();
      throw error;
    }
    if (loan !== undefined) follow(options, generation, loan);
    return generation;
  });
}

async function borrow({ node, id, log }: CheckpointOptions): Promise<Loan | undefined> {
  const [actor, pod] = await Promise.all([node.cgroups.actor(id), node.cgroups.pod()]);
  const free = pod.limitBytes - pod.usageBytes + pod.cleanCacheBytes;
  const wanted = actor.shmemBytes + IMAGE_MARGIN_BYTES;
  const loan = node.ledger.take(wanted, free);
  if (loan === undefined) {
    log.info("no memory to lend: the snapshot is written at disk speed", { wanted, free, ...node.ledger.state() });
  }
  return loan;
}

async function writeImage(options: CheckpointOptions, loan: Loan | undefined): Promise<Generation> {
  const { node, id, record, running, generations, phases } = options;
  const number = (generations.newest()?.generation ?? 0) + 1;
  const dir = await generations.begin(number);
  try {
    await phases.run("pause", async () => {
      if (!running.cut) {
        await node.network.block(running.slot);
        await node.runtime.pause(id);
      }
      await node.cgroups.moveToSnapshots(id);
    });
    // R6: without a loan the write goes around the page cache, at disk speed.
    await phases.run("checkpoint", () => node.runtime.checkpoint(id, dir, { direct: loan === undefined }));
    return await phases.run("persist", () =>
      generations.commit({
        generation: number,
        epoch: record.grant.epoch,
        revision: record.program.revision,
        imageDigest: running.imageDigest,
        runtime: node.runtimeBuild,
        fidelity: "Memory",
        envDigest: record.envDigest,
        rootfsTar: running.rootfsTar,
        volumes: record.volumes.stacks,
        createdAtMs: Date.now(),
      }),
    );
  } catch (error) {
    await undo(options, number, error);
    throw asSubstrateError(error);
  }
}

/** A failed checkpoint leaves the actor running as if nothing had been asked; throws if its sandbox did not survive. */
async function undo(
  { node, id, running, generations, log }: CheckpointOptions,
  number: number,
  cause: unknown,
): Promise<void> {
  try {
    await node.cgroups.moveBack(id);
    if (!running.cut) {
      await node.runtime.resume(id);
      await node.network.open(running.slot);
    }
  } catch (error) {
    throw new SubstrateError("PROGRAM_EXITED", `the checkpoint failed and the sandbox did not survive it`, {
      cause: new AggregateError([cause, error]),
    });
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
}

/** R9: only now do the files have their final names. R12, R15: the loan comes back when they are clean, gone or overdue. */
function follow({ node, generations, log }: CheckpointOptions, generation: Generation, loan: Loan): void {
  const paths = (generations.local(generation.generation)?.files ?? [])
    .filter(({ name }) => name === PAGES_FILE)
    .map(({ name }) => join(generations.path(generation.generation), name));
  node.writeBack.follow(paths, loan).then(
    (result) => log.debug("snapshot left the page cache's dirty list", { generation: generation.generation, result }),
    (error: unknown) => log.warn("write-back of a snapshot ended early", { generation: generation.generation, error }),
  );
}
