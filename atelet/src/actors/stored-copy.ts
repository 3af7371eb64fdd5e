import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { removeFolder } from "../node-files.ts";
import { copied } from "../store/object-snapshots.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorPrefix, type Owner, type Stored } from "../store/snapshots.ts";
import { type NodeContext } from "./node-context.ts";
import { type StoredPrefix } from "./record.ts";

export function ownerOf({ prefix, name }: StoredPrefix): Owner {
  const [namespace = "", object = ""] = name.split("/");
  return { uid: prefix.actorUid, namespace, name: object };
}

/** For what is on its way to a Snapshot object's prefix; an earlier atelet's are removed at the start. */
export function transferDir(node: NodeContext, { prefix }: StoredPrefix): string {
  return join(node.stateDir, "transfers", prefix.actorUid);
}

/** Copies a stored generation; within one store nothing of it comes here. */
export async function copyStored(
  node: NodeContext,
  from: { store: string; prefix: ActorPrefix; key: string },
  target: StoredPrefix,
): Promise<Stored> {
  const to = node.store(target.store);
  const owner = ownerOf(target);
  if (from.store === target.store) return to.copy(from, target.prefix, owner);
  const transfer = transferDir(node, target);
  const dir = join(transfer, "image");
  await removeFolder(transfer);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const table = join(transfer, "pages.table");
  try {
    const fetched = await node
      .store(from.store)
      .download(from.prefix, from.key, { dir, pages: { table, index: join(transfer, "pages.index"), reuse: [] } });
    const { pages, ...facts } = copied(fetched, owner).manifest;
    // in packs, whatever it was in
    await to.commit(
      target.prefix,
      { ...facts, format: pages ? 2 : facts.format },
      { dirs: [dir], pages: { table, bases: [] } },
    );
    const stored = await to.stored(target.prefix);
    if (stored !== undefined) return stored;
    throw new SubstrateError("INTERNAL", `Snapshot ${target.name} was stored and is not there`);
  } finally {
    await removeFolder(transfer);
  }
}

export function nothingToTag(name: string): SubstrateError {
  return new SubstrateError(
    "INVALID",
    `actor ${name} has no state yet, so there is nothing to tag: send it a request, or "kubectl ate resume" it, first`,
  );
}
