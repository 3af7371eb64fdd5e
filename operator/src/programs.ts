import { type Actor, type Template } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { buildProgram } from "./program.ts";
import { type Revisions } from "./revisions.ts";

/**
 * The program that an actor runs: its own revision once it has a snapshot, because a memory image fits no other; the
 * Template's newest before. Throws NOT_READY with what to do.
 */
export async function programOf(actor: Actor, template: Template | undefined, revisions: Revisions): Promise<Program> {
  const { namespace = "" } = actor.metadata;
  const { name } = actor.spec.templateRef;
  const about = `Actor ${keyOf(actor)}: Template ${namespace}/${name}`;
  if (template === undefined) {
    throw new SubstrateError("NOT_READY", `${about} does not exist: create it, or fix spec.templateRef`);
  }
  const saved = (actor.status?.generation ?? 0) > 0 ? actor.status?.revision : undefined;
  const revision = saved ?? template.status?.revision;
  if (revision === undefined || (saved === undefined && template.status?.phase !== "Ready")) {
    const why = template.status?.conditions?.find(({ type }) => type === "Ready")?.message ?? "it was not tried yet";
    throw new SubstrateError("NOT_READY", `${about} is not Ready: ${why}`, { retryAfterMs: 5_000 });
  }
  const { part, imageDigest } = await revisions.load(namespace, name, revision);
  return buildProgram(template, part, revision, imageDigest);
}
