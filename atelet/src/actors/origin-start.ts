import { join } from "node:path";
import { asSubstrateError, type ErrorCode, SubstrateError } from "@substrate/lib/errors.ts";
import { type UnpackedImage } from "../images/images.ts";
import { type HeldOrigin } from "../origins/origins.ts";
import { type Beginning, ROOTFS_TAR, NOTHING_OF_ROOTFS } from "./beginning.ts";
import { nextStart, wroteSince } from "./next-start.ts";
import { type ActorRecord, type Origin } from "./record.ts";
import { type SourceOptions } from "./source.ts";
import { chosenTag, type StartFrom } from "./start-from.ts";

/** That a golden snapshot cannot be had or restored, or its program does not live on: a cold start may do better. */
const coldAfter: ReadonlySet<ErrorCode> = new Set([
  "RESTORE_FAILED",
  "SNAPSHOT_DAMAGED",
  "SNAPSHOT_MISSING",
  "STORE_UNAVAILABLE",
  "STORE_FOREIGN",
  "PROGRAM_EXITED",
  "NOT_READY",
]);

/** Of these, what lies in the snapshot or in its program, and so comes again with the next actor. */
const programsFault: ReadonlySet<ErrorCode> = new Set(["RESTORE_FAILED", "PROGRAM_EXITED", "NOT_READY"]);

/** What an actor begins from that has saved nothing since; undefined: nothing but itself. */
export function originOf(options: SourceOptions, from: StartFrom | undefined): Origin | undefined {
  if (from?.kind === "tag") return chosenTag(from, options.record.floor);
  if (from !== undefined) return undefined;
  const next = nextStart(options);
  return next.kind === "origin" ? next.origin : undefined;
}

/**
 * Starts from a golden snapshot or a tag: with `begin`, which is given what to begin with. What fails of a tag is
 * thrown, naming it; a golden one is no more than faster.
 * @returns false if it was a golden one that cannot be restored.
 */
export async function startFromOrigin(
  options: SourceOptions,
  origin: Origin,
  image: (digest: string) => Promise<UnpackedImage>,
  begin: (image: UnpackedImage, beginning: Beginning) => Promise<void>,
): Promise<boolean> {
  const { node, record, phases, log } = options;
  const kind = origin.golden ? "golden" : "tag";
  const uid = origin.stored.prefix.actorUid;
  const { unfit } = node.origins;
  if (origin.golden && unfit.has(uid)) {
    node.metrics.originStarts.inc({ kind, outcome: "cold" });
    return false;
  }
  try {
    const held = await phases.run("download", () => node.origins.hold(origin.stored));
    let unpacked: UnpackedImage;
    try {
      refuseOtherRevision(record, origin, held);
      unpacked = await image(held.record.imageDigest);
    } catch (error) {
      await held.release();
      throw error;
    }
    await begin(unpacked, beginningOf(options, held));
    node.metrics.originStarts.inc({ kind, outcome: "ok" });
    unfit.started(uid);
    return true;
  } catch (thrown) {
    const error = asSubstrateError(thrown);
    const cold = origin.golden && coldAfter.has(error.code);
    node.metrics.originStarts.inc({ kind, outcome: cold ? "cold" : "failed" });
    if (!cold) throw origin.golden ? error : ofTag(origin, record, error);
    log.warn("the golden snapshot cannot be used: starting cold", { snapshot: origin.stored.name, error });
    if (programsFault.has(error.code) && unfit.failed(uid)) {
      log.error("starts from this golden snapshot fail again and again: new actors start cold at once", {
        snapshot: origin.stored.name,
        fix: "set spec.snapshots.golden of its Template to Never, or mend what its program does after a restore",
      });
    }
    return false;
  }
}

function ofTag({ stored, chosen }: Origin, { actor }: ActorRecord, error: SubstrateError): SubstrateError {
  const { name } = stored;
  const fix = chosen
    ? `start from another Snapshot or generation`
    : `create an Actor whose spec.source names another Snapshot`;
  const message = error.message.includes(name) ? error.message : `starting from Snapshot ${name}: ${error.message}`;
  if (error.code === "SNAPSHOT_MISSING") {
    const who = `actor ${actor.namespace}/${actor.name}`;
    const what = chosen ? `${who} cannot start from it` : `nothing of ${who}, which begins from it, was saved yet`;
    const anew = chosen ? fix : `delete the Actor and ${fix}`;
    return new SubstrateError(error.code, `${message}; ${what}: ${anew}`, { cause: error });
  }
  const { retryAfterMs } = error;
  return new SubstrateError(error.code, coldAfter.has(error.code) ? `${message}; if that stays so, ${fix}` : message, {
    cause: error,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

function refuseOtherRevision(record: ActorRecord, { stored }: Origin, held: HeldOrigin): void {
  const { fidelity, revision } = held.record;
  const { program } = record;
  if (fidelity !== "Memory" || revision === program.revision) return;
  throw new SubstrateError(
    "RESTORE_FAILED",
    `Snapshot ${stored.name} holds the memory of revision ${revision} of Template ${program.templateName}, and the ` +
      `actor is to run revision ${program.revision}: a memory image goes on only under its own revision`,
  );
}

/** Its volumes are the bottom layers of the actor's own. */
function beginningOf({ record }: SourceOptions, { uid, record: origin, imageDir, release }: HeldOrigin): Beginning {
  const { fidelity, envDigest, volumes, rootfsTar } = origin;
  const saved: Beginning["volumes"] = () => ({
    base: { generation: 0, epoch: 0 },
    stacks: volumes.map((name) => ({ name, layers: [{ origin: uid }] })),
  });
  const from = { generation: 0, origin: uid, envDigest, release };
  if (fidelity === "Memory") {
    return { ...from, restore: { imageDir }, ...(rootfsTar && { rootfsTar: NOTHING_OF_ROOTFS }), volumes: saved };
  }
  // What its program has written since, in a life that ended in a crash, is not in its memory: it stays.
  return {
    ...from,
    ...(fidelity === "Rootfs" && { rootfsTar: join(imageDir, ROOTFS_TAR) }),
    volumes: wroteSince(record, uid) ? () => record.volumes : saved,
  };
}
