import { type Connection } from "../connection.ts";
import { nodesPath, type NodeUsage, type NodeUsageList } from "../inspection.ts";
import { messageOf } from "../refusal.ts";
import { version } from "../version.ts";
import { type Finding, ok, problem, warning } from "./finding.ts";

const apiService = "v1alpha1.subresources.substrate.run";
/** More than this apart, times in statuses and Events mislead. */
const skewMs = 5_000;

/** Fields that this version's API has beyond earlier ones, in each kind's schema. */
export const newestFields: Readonly<Record<string, readonly string[]>> = {
  templates: ["spec.volumes", "spec.hooks", "spec.upgrade", "spec.nodeSelector", "spec.tolerations"],
  actors: ["spec.source", "spec.env", "spec.nodeSelector", "status.crash"],
  snapshots: ["spec.tag", "status.templateName"],
};

export interface Schema {
  properties?: Record<string, Schema>;
}

async function read(
  connection: Connection,
  path: string,
): Promise<{ status: number; value: unknown; message: string }> {
  const { status, body } = await connection.ask(path);
  const message = messageOf(status, body);
  return { status, value: status === 200 ? (JSON.parse(body) as unknown) : {}, message };
}

/** The API server and how far its clock is from this machine's. */
export async function apiServer(
  connection: Connection,
  nowMs: number,
): Promise<{ findings: Finding[]; nowMs: number }> {
  const response = await connection.open("/version");
  response.resume();
  const { date } = response.headers;
  const serverMs = date === undefined ? nowMs : Date.parse(date);
  const reached = ok(`the API server ${connection.server} answers`);
  if (Math.abs(serverMs - nowMs) <= skewMs) return { findings: [reached], nowMs: serverMs };
  const seconds = Math.round((nowMs - serverMs) / 1000);
  const skew = warning(
    `the clock of this machine is ${Math.abs(seconds)} s ${seconds > 0 ? "ahead of" : "behind"} the API server's`,
    "set both by NTP; ages that kubectl shows are wrong by as much",
  );
  return { findings: [reached, skew], nowMs: serverMs };
}

export async function kinds(connection: Connection): Promise<Finding[]> {
  const found = await kindsOneByOne(connection);
  if (!found.every(({ level }) => level === "warning")) return found;
  return [warning("the CustomResourceDefinitions of substrate.run can't be read: your user may not", askAdmin)];
}

async function kindsOneByOne(connection: Connection): Promise<Finding[]> {
  return Promise.all(
    Object.entries(newestFields).map(async ([plural, fields]) => {
      const name = `${plural}.substrate.run`;
      const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`;
      const { status, value: found, message } = await read(connection, path);
      const value = found as {
        spec?: { versions?: { schema?: { openAPIV3Schema?: Schema } }[] };
      };
      if (status === 404) return problem(`CustomResourceDefinition ${name} is missing`, "kubectl apply -f crds/yaml/");
      if (status !== 200) return warning(`CustomResourceDefinition ${name} can't be read: ${message}`, askAdmin);
      const schema = value.spec?.versions?.[0]?.schema?.openAPIV3Schema;
      const missing = fields.filter((field) => !hasField(schema, field));
      if (missing.length === 0) return ok(`CustomResourceDefinition ${name} is of this version`);
      const fix = "kubectl apply -f crds/yaml/ of this version, before its parts are started";
      return problem(`CustomResourceDefinition ${name} is of an older version: it lacks ${missing.join(", ")}`, fix);
    }),
  );
}

const askAdmin = "ask somebody with the rights of an administrator to run this, too";

export function hasField(schema: Schema | undefined, path: string): boolean {
  let at = schema;
  for (const name of path.split(".")) at = at?.properties?.[name];
  return at !== undefined;
}

export async function aggregatedApi(connection: Connection): Promise<Finding[]> {
  const path = `/apis/apiregistration.k8s.io/v1/apiservices/${apiService}`;
  const { status, value: found, message } = await read(connection, path);
  const value = found as {
    status?: { conditions?: { type: string; status: string; message?: string }[] };
  };
  if (status === 404) {
    return [
      problem(
        `APIService ${apiService} is missing`,
        "install the operator: it serves suspend, resume, exec and the rest",
      ),
    ];
  }
  if (status !== 200) return [warning(`APIService ${apiService} can't be read: ${message}`, askAdmin)];
  const available = value.status?.conditions?.find(({ type }) => type === "Available");
  if (available?.status === "True") return [ok(`APIService ${apiService} is available`)];
  const why = available?.message ?? "the API server has not looked at it yet";
  return [problem(`APIService ${apiService} is not available: ${why}`, "is the operator running? See its log")];
}

interface LeaseList {
  items: {
    metadata: { name: string; annotations?: Record<string, string> };
    spec?: { renewTime?: string; leaseDurationSeconds?: number; holderIdentity?: string };
  }[];
}

/** That the operator and every node's atelet renew their Leases. */
export async function leases(connection: Connection, namespace: string, nowMs: number): Promise<Finding[]> {
  const path = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`;
  const { status, value: found, message } = await read(connection, path);
  const value = found as LeaseList;
  if (status !== 200) return [warning(`Leases of namespace ${namespace} can't be read: ${message}`, askAdmin)];
  const own = value.items.filter(({ metadata }) => metadata.annotations?.["substrate.run/address"] !== undefined);
  const operator = own.find(({ metadata }) => metadata.name === "substrate-operator");
  const findings: Finding[] = [];
  if (operator === undefined) {
    const fix = `start the operator; is ${namespace} its namespace? (--system-namespace)`;
    findings.push(problem(`no operator has a Lease in namespace ${namespace}`, fix));
  }
  const nodes = own.filter((lease) => lease !== operator);
  if (nodes.length === 0)
    findings.push(
      problem(`no atelet has a Lease in namespace ${namespace}`, "start an atelet on each node that is to run actors"),
    );
  for (const lease of own) {
    const { name } = lease.metadata;
    const what = lease === operator ? "the operator" : `the atelet of node ${name}`;
    const { holderIdentity, leaseDurationSeconds = 30, renewTime = "1970-01-01" } = lease.spec ?? {};
    if (holderIdentity === undefined) {
      const fix = "start it again: what it kept is still there";
      findings.push(problem(`${what} has ended and given its Lease ${namespace}/${name} back`, fix));
      continue;
    }
    const ageMs = nowMs - Date.parse(renewTime);
    const validMs = leaseDurationSeconds * 1000;
    if (ageMs <= validMs + skewMs) findings.push(ok(`${what} renews its Lease`));
    else {
      const seconds = Math.round(ageMs / 1000);
      const fix = `is it running, and does it reach the API server? See its log`;
      findings.push(problem(`${what} has not renewed its Lease ${namespace}/${name} for ${seconds} s`, fix));
    }
  }
  return findings;
}

/** One finding for all nodes that say the same of a store. */
export function unusableStores(nodes: readonly NodeUsage[]): Finding[] {
  const saying = new Map<string, { what: string; names: string[] }>();
  for (const { metadata, stores = [] } of nodes) {
    for (const { name, message } of stores) {
      const key = `${name} ${message}`;
      const { names } = saying.get(key) ?? { names: [] };
      saying.set(key, { what: `store ${name} cannot be used: ${message}`, names: [...names, metadata.name] });
    }
  }
  const fix =
    "until then actors that were never saved do not start, and nothing is uploaded; it is tried again by itself";
  return [...saying.values()].map(({ what, names }) =>
    problem(`${what} (seen on ${names.toSorted().join(", ")})`, fix),
  );
}

/** What the operator itself says of the nodes. */
export async function nodes(connection: Connection): Promise<Finding[]> {
  const { status, value: found, message } = await read(connection, nodesPath);
  const value = found as NodeUsageList;
  if (status === 404 || status === 503)
    return [
      problem(
        `the operator can't be asked about its nodes: ${message}`,
        "is the operator running? What it logs says why it can't be asked",
      ),
    ];
  if (status !== 200) return [warning(`the operator's nodes can't be read: ${message}`, askAdmin)];
  const findings = value.items.map(
    ({ metadata: { name }, lost, reachable, trouble, unschedulable, address }): Finding => {
      if (lost === true) {
        const fix = "bring the node back: its actors go on there, and nothing moves by itself (kubectl get nodes)";
        return problem(`node ${name} is lost: it has been silent for long, and its Lease was not renewed`, fix);
      }
      if (!reachable) {
        const fix = "let the operator's pod reach that address; see its log for why it can't";
        return problem(`the operator does not reach the atelet of node ${name} at ${address}`, fix);
      }
      if (unschedulable) return warning(`node ${name} is cordoned: it gets no new actors`, `kubectl uncordon ${name}`);
      if (trouble !== undefined) {
        return warning(`node ${name} ${trouble}: it gets no new actors`, `kubectl describe node ${name}`);
      }
      return ok(`the operator reaches the atelet of node ${name}`);
    },
  );
  findings.push(...unusableStores(value.items));
  const theirs = value.operator.version;
  if (theirs === version) return [...findings, ok(`the operator and this plugin are of version ${version}`)];
  const fix = "use the plugin of the operator's version: its commands may ask for what the other does not know";
  return [...findings, warning(`the operator is of version ${theirs}, this plugin of ${version}`, fix)];
}
