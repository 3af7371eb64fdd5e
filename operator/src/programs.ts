import { type Actor, type Template } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { buildProgram } from "./program.ts";
import { reasonOf } from "./reasons.ts";
import { type Revisions } from "./revisions.ts";

/**
 * The program that an actor runs: its own revision once it has a snapshot, because a memory image fits no other; before,
 * that of the snapshot it begins from (`originRevision`), else the Template's newest. Throws TEMPLATE_MISSING, TEMPLATE_NOT_READY, or NOT_READY when that revision is lost.
 */
export async function programOf(
  actor: Actor,
  template: Template | undefined,
  revisions: Revisions,
  originRevision?: string,
): Promise<Program> {
  const { namespace = "" } = actor.metadata;
  const { name } = actor.spec.templateRef;
  const about = `Actor ${keyOf(actor)}: Template ${namespace}/${name}`;
  if (template === undefined) {
    throw new SubstrateError("TEMPLATE_MISSING", `${about} does not exist: create it, or fix spec.templateRef`);
  }
  const saved = (actor.status?.generation ?? 0) > 0 ? actor.status?.revision : originRevision;
  const revision = saved ?? template.status?.revision;
  if (revision === undefined || (saved === undefined && template.status?.phase !== "Ready")) {
    const ready = template.status?.conditions?.find(({ type }) => type === "Ready");
    const message = `${about} is not Ready: ${ready?.message ?? "it was not tried yet"}`;
    throw new SubstrateError("TEMPLATE_NOT_READY", message, retryOf(template, ready?.reason));
  }
  const { part, imageDigest } = await revisions.load(namespace, name, revision);
  return buildProgram(template, part, revision, imageDigest);
}

/** When a caller may try again; nothing where only a person, by a change of the Template, makes a difference. */
function retryOf({ status }: Template, reason: string | undefined): { retryAfterMs?: number } {
  if (status?.phase !== "Failed") return { retryAfterMs: 5_000 };
  return reason === reasonOf("INVALID") ? {} : { retryAfterMs: 60_000 };
}
