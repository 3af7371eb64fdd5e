import type { Actor } from "@substrate/crds/actor.ts";
import type { Template } from "@substrate/crds/template.ts";
import { type Condition, isFailedUpload } from "../condition.ts";
import { type Connection } from "../connection.ts";
import { messageOf } from "../refusal.ts";
import { withoutSubject } from "../subject.ts";
import { type Finding, ok, problem, warning } from "./finding.ts";

const conditionOf = (status: { conditions?: Condition[] } | undefined, type: string): Condition | undefined =>
  status?.conditions?.find((condition) => condition.type === type);

function why(key: string, ready: Condition | undefined): string {
  if (ready === undefined) return ": no operator has looked at it";
  return ` (${ready.reason}): ${withoutSubject(key, ready.message)}`;
}

async function all<T>(connection: Connection, plural: string): Promise<T[] | Finding> {
  const { status, body } = await connection.ask(`/apis/substrate.run/v1alpha1/${plural}`);
  if (status === 200) return (JSON.parse(body) as { items: T[] }).items;
  const message = messageOf(status, body);
  return warning(
    `${plural} of all namespaces can't be listed: ${message}`,
    `see "kubectl get ${plural}" in your namespace`,
  );
}

export async function templates(connection: Connection): Promise<Finding[]> {
  const found = await all<Template>(connection, "templates");
  if (!Array.isArray(found)) return [found];
  const bad = found.flatMap(({ metadata: { name, namespace = "" }, status }) => {
    const ready = conditionOf(status, "Ready");
    if (ready?.status === "True") return [];
    const fix = `kubectl describe template ${name} -n ${namespace}`;
    return [problem(`template ${namespace}/${name} is not Ready${why(`${namespace}/${name}`, ready)}`, fix)];
  });
  return bad.length > 0 ? bad : [ok(`all templates are Ready (${found.length})`)];
}

export async function actors(connection: Connection): Promise<Finding[]> {
  const found = await all<Actor>(connection, "actors");
  if (!Array.isArray(found)) return [found];
  const bad = found.flatMap((actor) => {
    const { name, namespace = "" } = actor.metadata;
    const findings: Finding[] = [];
    const ready = conditionOf(actor.status, "Ready");
    const fix = `kubectl ate describe ${name} -n ${namespace}`;
    if (ready?.status !== "True" && actor.spec.state !== "Suspended") {
      findings.push(problem(`actor ${namespace}/${name} is not Ready${why(`${namespace}/${name}`, ready)}`, fix));
    }
    const upload = failingUpload(actor);
    if (upload !== undefined) {
      const store = `it is tried again by itself: see that the store is there and its node reaches it, then ${fix}`;
      findings.push(problem(`actor ${namespace}/${name} is not saved in its store: ${upload}`, store));
    }
    return findings;
  });
  return bad.length > 0 ? bad : [ok(`all actors are Ready (${found.length})`)];
}

/** Why the newest generation is not in the store, where that is more than waiting for its turn. */
function failingUpload({ status }: Actor): string | undefined {
  const durable = conditionOf(status, "Durable");
  if (durable === undefined || !isFailedUpload(durable)) return undefined;
  return `${durable.message} (${durable.reason})`;
}
