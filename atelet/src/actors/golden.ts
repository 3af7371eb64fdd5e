import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { type Slot } from "../network/network.ts";
import { removeFolder } from "../node-files.ts";
import { type HeldOrigin } from "../origins/origins.ts";
import { type Stored } from "../store/snapshots.ts";
import { type ActorVolumes, volumeFile } from "../volumes/actor-volumes.ts";
import { packFolder } from "../volumes/archive.ts";
import { claimImage } from "./disk-claims.ts";
import { borrow } from "./suspend.ts";
import { type NodeContext } from "./node-context.ts";
import { type Program, type StoredPrefix } from "./record.ts";
import { ownerOf, transferDir } from "./stored-copy.ts";
import { follow, largeFile } from "./unwritten.ts";

export interface GoldenOptions {
  node: NodeContext;
  /** Of the trial's sandbox. */
  id: string;
  slot: Slot;
  program: Program;
  imageDigest: string;
  envDigest: string;
  volumes: ActorVolumes;
  /** Removes the sandbox. */
  stop: () => Promise<void>;
  target: StoredPrefix;
  phases: Phases;
  log: Logger;
}

/**
 * Saves a program that has just become ready, with its volumes, among this node's origins; its sandbox is gone
 * afterwards. What an earlier try has left under this name is taken as it is: it is of the same program.
 */
export function keepGolden(options: GoldenOptions): Promise<HeldOrigin> {
  const { node, id, program, imageDigest, envDigest, volumes, target, log } = options;
  const uid = target.prefix.actorUid;
  return node.origins.make(uid, (dir) =>
    node.snapshotSlots(async () => {
      const claim = await claimImage(node, { sandboxId: id, what: `Snapshot ${target.name}`, urgent: false });
      const loan = await borrow({ node, sandboxId: id, log });
      try {
        await writeImage(options, join(dir, "image"), { lent: loan !== undefined });
        await options.stop();
        volumes.started({ cold: true });
        await volumes.detach();
        for (const { name } of program.volumeMounts) {
          const into = node.origins.newVolumeDir(uid, name);
          await mkdir(dirname(into), { recursive: true, mode: 0o700 });
          await volumes.moveOut(name, into);
        }
      } catch (error) {
        loan?.return();
        throw error;
      } finally {
        claim.end();
      }
      const { revision, volumeMounts } = program;
      const of = { revision, imageDigest, runtime: node.runtimeBuild, fidelity: "Memory", envDigest } as const;
      const names = volumeMounts.map(({ name }) => name);
      return {
        facts: { name: target.name, ...of, createdAtMs: Date.now(), volumes: names, rootfsTar: false },
        placed: (imageDir) => {
          if (loan !== undefined) follow(node, largeFile(imageDir, "Memory"), loan);
        },
      };
    }),
  );
}

async function writeImage(
  { node, id, slot, phases }: GoldenOptions,
  imageDir: string,
  how: { lent: boolean },
): Promise<void> {
  const moved = await phases.run("pause", async () => {
    await node.network.block(slot);
    await node.runtime.pause(id);
    return node.cgroups.moveToSnapshots(id, how);
  });
  await phases.run("checkpoint", () => node.runtime.checkpoint(id, imageDir, moved));
}

/** Writes a golden snapshot under the prefix of its Snapshot object. Idempotent. */
export async function storeGolden(node: NodeContext, held: HeldOrigin, target: StoredPrefix): Promise<Stored> {
  const { uid, record, imageDir } = held;
  const store = node.store(target.store);
  const packed = transferDir(node, target);
  try {
    await removeFolder(packed);
    await mkdir(packed, { recursive: true, mode: 0o700 });
    for (const name of record.volumes) {
      const file = join(packed, volumeFile(name));
      await node.volumes.jobs(() => packFolder(node.origins.volumeDir(uid, name), file, node.signal));
    }
    const stamps = await node.origins.stamps(uid);
    const committed = await store.commit(
      target.prefix,
      {
        format: record.volumes.length === 0 ? 1 : 2,
        actor: ownerOf(target),
        generation: 1,
        epoch: 1,
        revision: record.revision,
        imageDigest: record.imageDigest,
        fidelity: "Memory",
        ...(record.envDigest !== "" && { envDigest: record.envDigest }),
        ...(record.volumes.length > 0 && { volumes: record.volumes.map((name) => ({ name })) }),
        sandbox: { class: "gvisor", runtime: record.runtime, architecture: "amd64" },
        createdAt: new Date(record.createdAtMs).toISOString(),
      },
      { dirs: [imageDir, packed], pages: { table: held.pages.table, bases: [] } },
    );
    await node.origins.stored(uid, stamps, committed);
  } finally {
    await removeFolder(packed);
  }
  const stored = await store.stored(target.prefix);
  if (stored !== undefined) return stored;
  throw new SubstrateError("INTERNAL", `golden snapshot ${target.name} was stored and is not there`);
}
