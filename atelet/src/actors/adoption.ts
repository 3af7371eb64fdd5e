import { type ActorContext } from "./actor-context.ts";
import { type ActorSandbox, type ActorSandboxOptions } from "./actor-sandbox.ts";
import { type Operations } from "./operations.ts";
import { type Uploader } from "./uploader.ts";

export interface AdoptionOptions extends ActorContext {
  operations: Operations;
  sandbox: ActorSandbox;
  uploader: Uploader;
  crashed: ActorSandboxOptions["crashed"];
}

/** Files and sandbox as an earlier atelet left them. `status` is what the runtime says of the sandbox. */
export async function adopt(options: AdoptionOptions, status: "running" | "paused" | "gone"): Promise<void> {
  const { record, generations, volumes, operations, sandbox, uploader, save, crashed } = options;
  await loadGenerations(options);
  operations.interrupted();
  const was = record.sandbox;
  const newest = generations.newest();
  const saved =
    was !== undefined &&
    newest !== undefined &&
    newest.createdAtMs > was.startedAtMs &&
    newest.generation !== was.taggedGeneration;
  if (was !== undefined && (status === "gone" || (status === "paused" && saved))) {
    const why = saved ? undefined : await sandbox.endingMeanwhile();
    await sandbox.clear(was);
    if (saved) volumes.saved({ generation: newest.generation, epoch: newest.epoch });
    else crashed(why ?? "its sandbox was gone when the atelet came back", { byItself: why !== undefined });
    record.sandbox = undefined;
  } else if (was !== undefined) {
    await sandbox.adopt(was, status === "paused");
  } else await volumes.load(false);
  await save({ durable: false });
  uploader.schedule();
  volumes.flattenSoon();
}

async function loadGenerations({ generations, log }: AdoptionOptions): Promise<void> {
  const { removed, aside } = await generations.load();
  if (removed.length > 0) log.warn("removed what a crash left unfinished", { removed });
  if (aside.length > 0) log.error("snapshots that cannot be read were set aside", { aside });
}

/** Generations that are here without a record, after it was damaged or removed: they count, and the head decides. */
export async function takeOver(options: AdoptionOptions): Promise<void> {
  const { record, generations, volumes, crashed } = options;
  await loadGenerations(options);
  await volumes.load(false);
  const found = generations.all();
  if (found.length === 0) return;
  // What was made under an epoch was made by the node that had it: this one had at least the highest of them.
  const priorEpoch = Math.max(...found.map(({ epoch }) => epoch));
  record.claim = { state: "needed", priorEpoch };
  crashed(`its record on the node was lost; generation ${found[0]?.generation ?? 0} was found there`, {
    byItself: false,
  });
}
