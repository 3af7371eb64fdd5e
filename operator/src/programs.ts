import { type Actor, type Template } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { reasonOf } from "./reasons.ts";

function about(actor: Actor): string {
  return `Actor ${keyOf(actor)}: Template ${actor.metadata.namespace}/${actor.spec.templateRef.name}`;
}

/** The field cannot be changed. */
export const templateMissingFix = "create it, or delete this Actor and make it again with the right spec.templateRef";

/** Throws TEMPLATE_MISSING. */
export function requireTemplate(actor: Actor, template: Template | undefined): Template {
  if (template !== undefined) return template;
  throw new SubstrateError("TEMPLATE_MISSING", `${about(actor)} does not exist: ${templateMissingFix}`);
}

/** That an actor needs the Template's newest revision, and it is not Ready. */
export function notReady(actor: Actor, template: Template): SubstrateError {
  const ready = template.status?.conditions?.find(({ type }) => type === "Ready");
  const message = `${about(actor)} is not Ready: ${ready?.message ?? "it was not tried yet"}`;
  return new SubstrateError("TEMPLATE_NOT_READY", message, retryOf(template, ready?.reason));
}

/** When a caller may try again; nothing where only a person, by a change of the Template, makes a difference. */
function retryOf({ status }: Template, reason: string | undefined): { retryAfterMs?: number } {
  if (status?.phase !== "Failed") return { retryAfterMs: 5_000 };
  return reason === reasonOf("INVALID") ? {} : { retryAfterMs: 60_000 };
}
