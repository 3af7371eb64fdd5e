import { type Connection } from "../connection.ts";
import { type Finding, ok, warning } from "./finding.ts";

const crds = "substrate.run";
const verbs = "subresources.substrate.run";

/** What each command needs. */
const needed: readonly { command: string; verb: string; resource: string; group: string }[] = [
  { command: "get", verb: "list", resource: "actors", group: crds },
  { command: "describe", verb: "get", resource: "actors", group: crds },
  { command: "describe", verb: "get", resource: "actors/operations", group: verbs },
  { command: "top", verb: "get", resource: "actors/usage", group: verbs },
  { command: "suspend", verb: "create", resource: "actors/suspend", group: verbs },
  { command: "resume", verb: "create", resource: "actors/resume", group: verbs },
  { command: "suspend and resume", verb: "watch", resource: "actors", group: crds },
  { command: "log", verb: "get", resource: "actors/log", group: verbs },
  { command: "exec and cp", verb: "get", resource: "actors/exec", group: verbs },
  { command: "exec and cp", verb: "create", resource: "actors/exec", group: verbs },
  { command: "tag", verb: "create", resource: "snapshots", group: crds },
  { command: "fork", verb: "create", resource: "actors", group: crds },
  { command: "fork", verb: "use", resource: "snapshots", group: crds },
  { command: "proxy", verb: "get", resource: "actors/proxy", group: verbs },
];

/** Which commands the user may run in the connection's namespace. */
export async function rights(connection: Connection): Promise<Finding[]> {
  const missing = (
    await Promise.all(needed.map(async (right) => ((await may(connection, right)) ? undefined : right)))
  ).filter((right) => right !== undefined);
  const { namespace, user } = connection;
  if (missing.length === 0) return [ok(`user "${user}" may run every command in namespace ${namespace}`)];
  const commands = [...new Set(missing.map(({ command }) => command))];
  const lacking = missing.map(({ verb, resource, group }) => `  ${verb} on ${resource}.${group}\n`);
  const fix =
    `these verbs are missing; substrate-edit of local/manifests/roles.yaml has them all, substrate-view what only reads:\n` +
    `${lacking.join("")}kubectl create rolebinding ate -n ${namespace} --clusterrole=substrate-edit --user=USER`;
  return [warning(`user "${user}" may not run these in namespace ${namespace}: ${commands.join(", ")}`, fix)];
}

async function may(connection: Connection, right: { verb: string; resource: string; group: string }): Promise<boolean> {
  const [resource, subresource] = right.resource.split("/");
  const { status, body } = await connection.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: {
        resourceAttributes: {
          namespace: connection.namespace,
          verb: right.verb,
          group: right.group,
          resource,
          ...(subresource === undefined ? {} : { subresource }),
        },
      },
    }),
  });
  return status === 201 && (JSON.parse(body) as { status: { allowed: boolean } }).status.allowed;
}
