import { type Connection } from "./connection.ts";
import { type ActorAddress } from "./address.ts";
import { CommandFailure } from "./failure.ts";
import { type Asked, rbacHint } from "./rbac.ts";
import { withoutSubject } from "./subject.ts";

/** The part of metav1.Status that is told to a person. */
interface StatusObject {
  kind: "Status";
  message?: string;
  reason?: string;
  details?: { kind?: string; name?: string; causes?: { reason?: string }[]; retryAfterSeconds?: number };
}

export function parseStatus(body: string): StatusObject | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return isStatus(value) ? value : undefined;
  } catch {
    // not JSON: a plain text of the API server or of a proxy before it, which the caller shows as it is
    return undefined;
  }
}

/** What an answer says for a person: a Status, or the plain text of the API server or of a proxy before it. */
export function messageOf(status: number, body: string): string {
  return parseStatus(body)?.message ?? (body.trim() === "" ? `HTTP ${status}` : body.trim());
}

function isStatus(value: unknown): value is StatusObject {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "Status";
}

/** A refusal by the API server or the aggregated API as a failure that says what can be done. */
export async function refusal(
  connection: Connection,
  actor: ActorAddress | undefined,
  asked: Asked,
  status: number,
  body: string,
): Promise<CommandFailure> {
  const said = parseStatus(body);
  const text = messageOf(status, body);
  const message = actor === undefined ? text : withoutSubject(`${actor.namespace}/${actor.name}`, text);
  const object = actor === undefined ? asked.resource : `actor ${actor.namespace}/${actor.name}`;
  switch (status) {
    case 401:
      return new CommandFailure(
        "forbidden",
        `${connection.server} doesn't accept the credentials of the kubeconfig's user "${connection.user}"`,
        "log in again, or choose another user with --context",
      );
    case 403:
      return new CommandFailure("forbidden", `${object}: ${message}`, rbacHint(connection, asked));
    case 404:
      if (said?.details?.kind === "actors" && actor !== undefined) return notFound(connection, actor);
      return notInstalled(connection, asked, message);
    case 503:
      if (said?.details?.causes?.[0]?.reason === undefined) return operatorAway(connection, asked, message);
      return new CommandFailure("operationFailed", `${object}: ${message}`, retryHint(said));
    default:
      return new CommandFailure(status === 400 ? "usage" : "operationFailed", `${object}: ${message}`, retryHint(said));
  }
}

/** Whether nobody could accept it only because the operator is being restarted or does not lead yet. */
export function passesSoon(status: number, body: string): boolean {
  if (status !== 503) return false;
  const code = parseStatus(body)?.details?.causes?.[0]?.reason;
  return code === undefined || code === "SHUTTING_DOWN";
}

function retryHint(said: StatusObject | undefined): string | undefined {
  const seconds = said?.details?.retryAfterSeconds;
  return seconds === undefined ? undefined : `try again in ${seconds} s`;
}

function notInstalled(connection: Connection, { group }: Asked, message: string): CommandFailure {
  const what =
    group === "substrate.run" ? `kubectl get crd actors.${group}` : `kubectl get apiservice v1alpha1.${group}`;
  return new CommandFailure(
    "unavailable",
    `${connection.server} doesn't serve ${group}/v1alpha1: ${message}`,
    `is Substrate installed in this cluster? See "${what}"`,
  );
}

function operatorAway(connection: Connection, { group }: Asked, message: string): CommandFailure {
  return new CommandFailure(
    "unavailable",
    `${connection.server} can't reach Substrate's operator: ${message}`,
    `see "kubectl get apiservice v1alpha1.${group}" and the operator's log`,
  );
}

/** Says which actors there are: most often the name or the namespace was mistyped. */
async function notFound(connection: Connection, actor: ActorAddress): Promise<CommandFailure> {
  const message = `there is no actor ${actor.name} in namespace ${actor.namespace}`;
  const { status, body } = await connection.ask(
    `/apis/substrate.run/v1alpha1/namespaces/${encodeURIComponent(actor.namespace)}/actors?limit=500`,
  );
  if (status !== 200) return new CommandFailure("notFound", message);
  const { items } = JSON.parse(body) as { items: { metadata: { name: string } }[] };
  const names = items.map((item) => item.metadata.name);
  if (names.length === 0) {
    return (
      (await missingNamespace(connection, actor.namespace)) ??
      new CommandFailure("notFound", message, "that namespace has no actors; name another one with -n")
    );
  }
  const near = nearest(actor.name, names);
  return new CommandFailure(
    "notFound",
    message,
    near.length > 0 ? `did you mean ${near.join(" or ")}?` : `it has ${listed(names)}`,
  );
}

/** For a namespace without actors; undefined when it exists, or when the user may not know. */
export async function missingNamespace(connection: Connection, namespace: string): Promise<CommandFailure | undefined> {
  const { status } = await connection.ask(`/api/v1/namespaces/${encodeURIComponent(namespace)}`);
  if (status !== 404) return undefined;
  return new CommandFailure("notFound", `there is no namespace ${namespace}`, 'see "kubectl get namespaces"');
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, 10);
  const more = names.length - shown.length;
  return shown.join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** Up to three names within a third of the name's length in edits, or beginning with it; the nearest first. */
export function nearest(name: string, names: readonly string[]): string[] {
  const limit = Math.max(1, Math.floor(name.length / 3));
  return names
    .map((candidate) => ({ candidate, edits: candidate.startsWith(name) ? 1 : distance(name, candidate) }))
    .filter(({ edits }) => edits <= limit)
    .sort((a, b) => a.edits - b.edits)
    .slice(0, 3)
    .map(({ candidate }) => candidate);
}

/** Levenshtein's edit distance. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
