import { type GenerationRecord } from "../generations/folder.ts";
import { type ManifestFacts } from "../store/snapshots.ts";
import { type ActorRecord, type Generation } from "./record.ts";

/** What is written into the store beside a generation's files. @param local undefined: it has no volumes here. */
export function manifestOf(
  { actor }: Pick<ActorRecord, "actor">,
  target: Generation,
  local: GenerationRecord | undefined,
): ManifestFacts {
  const volumes = (local?.volumes ?? []).map(({ name }) => ({ name }));
  const more = {
    ...(volumes.length > 0 && { volumes }),
    ...(local?.rootfsTar === true && { rootfsTar: true }),
  };
  return {
    format: target.fidelity === "Memory" && Object.keys(more).length === 0 ? 1 : 2,
    actor: { uid: actor.uid, namespace: actor.namespace, name: actor.name },
    generation: target.generation,
    epoch: target.epoch,
    revision: target.revision,
    imageDigest: target.imageDigest,
    fidelity: target.fidelity,
    ...(target.envDigest !== "" && { envDigest: target.envDigest }),
    sandbox: { class: "gvisor", runtime: target.runtime, architecture: "amd64" },
    createdAt: new Date(target.createdAtMs).toISOString(),
    ...more,
  };
}
