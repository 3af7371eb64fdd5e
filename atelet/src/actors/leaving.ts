import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorContext } from "./actor-context.ts";
import { type ActorSandbox } from "./actor-sandbox.ts";
import { damagedError } from "./damaged.ts";
import { nextStart } from "./next-start.ts";
import { type Operations } from "./operations.ts";
import { type Route } from "./route.ts";
import { rewindHead } from "./start-from.ts";
import { type Uploader } from "./uploader.ts";

/** How long leaving waits for an upload to end before it takes the files away under it. */
const WRITES_END_MS = 2000;

export interface LeavingOptions extends ActorContext {
  operations: Operations;
  sandbox: ActorSandbox;
  uploader: Uploader;
  route: Route;
}

/**
 * Makes sure that nothing begins for the actor any more, so that its epoch can be given up; or says why it cannot be now
 * (design.md §7 Release). A wake that comes while the store is asked wins.
 */
export async function prepareToLeave(options: LeavingOptions): Promise<string | undefined> {
  const { node, name, record, prefix, generations, operations, uploader } = options;
  const busy = whyBusy(options);
  if (busy !== undefined) return busy;
  // whoever has the actor next does not know of them
  if (uploader.isCollecting) {
    uploader.schedule();
    return "older generations are still being removed from the store";
  }
  await rewindHead(options);
  // what is left of it would go with its files
  const next = nextStart(options);
  if (next.kind === "damaged") return damagedError(options, next.generation).message;
  const newest = generations.newest();
  if (newest !== undefined && newest.generation <= record.floor) {
    return `it was started anew after generation ${newest.generation}, and nothing of it was saved since`;
  }
  if (newest?.storage.state === "PENDING") {
    const head = await node.store(record.program.store).head(prefix);
    if ((head?.epoch ?? 0) <= record.grant.epoch) return `generation ${newest.generation} is not in the store yet`;
  }
  const awoke = whyBusy(options);
  if (awoke !== undefined) return awoke;
  if (generations.newest()?.generation !== newest?.generation) return "it was awake meanwhile";
  operations.close(new SubstrateError("MOVED", `actor ${name} is leaving this node`));
  return undefined;
}

function whyBusy({ record, operations, sandbox }: LeavingOptions): string | undefined {
  if (operations.type !== undefined) return "an operation is in progress";
  if (sandbox.running !== undefined) return "its sandbox exists";
  if (record.volumes.unsaved) {
    return "its volumes hold what no snapshot has; resume it, so that it can be suspended";
  }
  return undefined;
}

/**
 * Ends all that runs for an actor, the sandbox included, and removes its files from the node.
 * @returns when nothing of it writes to the store any more: that may take long if the store hangs.
 */
export async function leave(options: LeavingOptions): Promise<{ writes: Promise<void> }> {
  const { node, name, record, files, generations, volumes, operations, sandbox, uploader, route, log } = options;
  const reason = new SubstrateError("MOVED", `actor ${name} left this node`);
  if (operations.type !== undefined) {
    await sandbox.kill();
    await operations.idle();
  }
  if (sandbox.running !== undefined) await sandbox.stop(sandbox.running);
  const writes = uploader.stop(reason);
  await Promise.race([writes, delay(WRITES_END_MS, undefined, { ref: false })]);
  await sandbox.settled();
  await node.network.giveUp(record.actor.uid);
  await volumes.close();
  route.end();
  await node.outputs.remove(record.actor.uid);
  const aside = generations.all().flatMap(({ generation }) => generations.asidePath(generation) ?? []);
  if (aside.length > 0) log.warn("what is left of damaged snapshots goes with the actor's files", { aside });
  await files.close();
  return { writes };
}
