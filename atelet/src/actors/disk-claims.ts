import { type DiskClaim } from "../disk/contract.ts";
import { type NodeContext } from "./node-context.ts";
import { type Fidelity } from "./record.ts";
import { type Running } from "./running.ts";

/** What an image has beside the sandbox's memory, with its page table. */
const BESIDE_MEMORY_BYTES = 8 * 2 ** 20;
const TABLE_PART = 1 / 256;
/** Copies are stored and removed within this time, or the actor runs on. */
const SUSPEND_WITHIN_MS = 10_000;
/** Somebody waits for a wake, and another node may have room. */
const DOWNLOAD_WITHIN_MS = 5000;

export interface SnapshotClaim {
  node: NodeContext;
  /** <namespace>/<name> */
  name: string;
  running: Pick<Running, "sandboxId">;
  fidelity: Fidelity;
  urgent?: boolean;
}

/** Space for the image of a running sandbox; none is needed for volumes, which stay where they are. Throws NO_ROOM. */
export async function claimFor(options: SnapshotClaim): Promise<DiskClaim | undefined> {
  const { node, name, running, fidelity, urgent = false } = options;
  if (fidelity === "Data") return undefined;
  return claimImage(node, { sandboxId: running.sandboxId, what: `a snapshot of actor ${name}`, urgent });
}

export async function claimImage(
  node: NodeContext,
  { sandboxId, what, urgent }: { sandboxId: string; what: string; urgent: boolean },
): Promise<DiskClaim> {
  const { shmemBytes } = await node.cgroups.actor(sandboxId);
  const bytes = Math.ceil(shmemBytes * (1 + TABLE_PART)) + BESIDE_MEMORY_BYTES;
  return node.disk.claim({ bytes, what, withinMs: SUSPEND_WITHIN_MS, kind: "snapshot", urgent });
}

/** Space for what is fetched from a store. Throws NO_ROOM. */
export function claimDownload(node: Pick<NodeContext, "disk">, bytes: number, what: string): Promise<DiskClaim> {
  return node.disk.claim({
    bytes: Math.ceil(bytes * (1 + TABLE_PART)),
    what,
    withinMs: DOWNLOAD_WITHIN_MS,
    kind: "snapshot",
  });
}
