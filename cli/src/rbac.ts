import { type Connection } from "./connection.ts";

/** What was asked, for messages: a verb of RBAC (or two, with a comma) on a resource of a group. */
export interface Asked {
  verb: string;
  resource: string;
  group: string;
}

/** Resources that are in no namespace: only a ClusterRole can give them. */
const clusterWide: ReadonlySet<string> = new Set(["nodes"]);

/** How an administrator gives a right that is missing, as commands that work as they are but for USER. */
export function rbacHint({ namespace }: Connection, { verb, resource, group }: Asked): string {
  const name = `ate-${verb.replace(",", "-")}-${resource.replace("/", "-")}`;
  const kind = clusterWide.has(resource) ? "ClusterRole" : "Role";
  const within = kind === "Role" ? ` -n ${namespace}` : "";
  const [role, binding] = [kind.toLowerCase(), `${kind.toLowerCase()}binding`];
  // "kubectl create role" knows neither subresources of aggregated APIs nor the verb "use"
  const object = {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind,
    metadata: { name },
    rules: [{ apiGroups: [group], resources: [resource], verbs: verb.split(",") }],
  };
  return (
    `the user needs the verb "${verb}" on ${resource} of the API group ${group}, for instance by\n` +
    `  echo '${JSON.stringify(object)}' | kubectl create${within} -f -\n` +
    `  kubectl create ${binding} ${name}${within} --${role}=${name} --user=USER`
  );
}
