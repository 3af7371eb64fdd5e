import { type Connection } from "../connection.ts";
import { type Finding, ok, problem } from "./finding.ts";

const enforceLabel = "pod-security.kubernetes.io/enforce";

/** What of a DaemonSet tells whether it makes its pods. */
export interface DaemonSet {
  metadata: { name: string };
  status?: { desiredNumberScheduled?: number; currentNumberScheduled?: number; numberReady?: number };
}

export interface FailedPod {
  reason?: string;
  message?: string;
  involvedObject?: { kind?: string; name?: string };
}

/** Whether the pods of the atelets can be made, and are. Nothing on one machine, where there are no DaemonSets. */
export function podFindings(
  namespace: string,
  labels: Readonly<Record<string, string>>,
  sets: readonly DaemonSet[],
  events: readonly FailedPod[],
): Finding[] {
  const findings: Finding[] = [];
  const level = labels[enforceLabel];
  if (level === "baseline" || level === "restricted") {
    const what = `namespace ${namespace} enforces PodSecurity "${level}", which forbids the atelets' privileged pods`;
    findings.push(problem(what, `kubectl label namespace ${namespace} ${enforceLabel}=privileged --overwrite`));
  }
  for (const { metadata, status } of sets.filter((set) => set.metadata.name.includes("atelet"))) {
    const { name } = metadata;
    const {
      currentNumberScheduled: made = 0,
      desiredNumberScheduled: wanted = 0,
      numberReady: ready = 0,
    } = status ?? {};
    if (wanted > 0 && made >= wanted && ready >= wanted) findings.push(ok(`DaemonSet ${name} has ${ready} pods ready`));
    else if (wanted === 0) {
      const fix =
        "look at the nodeSelector and tolerations of its node pool (helm get values), and at kubectl get nodes";
      findings.push(problem(`DaemonSet ${name} has no node to run on`, fix));
    } else {
      const isAbout = ({ involvedObject }: FailedPod): boolean =>
        involvedObject?.kind === "DaemonSet" && involvedObject.name === name;
      const failed = events.filter((event) => event.reason === "FailedCreate" && isAbout(event)).at(-1);
      const why = made < wanted && failed?.message !== undefined ? `: ${failed.message}` : "";
      const what = `DaemonSet ${name} has ${ready} of ${wanted} pods ready${why}`;
      findings.push(
        problem(what, `kubectl describe daemonset ${name} -n ${namespace}; kubectl get pods -n ${namespace} -o wide`),
      );
    }
  }
  return findings;
}

/** What the caller may not read is left out: only the pods' own trouble is worth a line. */
export async function pods(connection: Connection, namespace: string): Promise<Finding[]> {
  const read = async <T>(path: string, otherwise: T): Promise<T> => {
    const { status, body } = await connection.ask(path);
    return status === 200 ? (JSON.parse(body) as T) : otherwise;
  };
  const failedCreate = "fieldSelector=reason%3DFailedCreate";
  const [own, sets, events] = await Promise.all([
    read<{ metadata: { labels?: Record<string, string> } }>(`/api/v1/namespaces/${namespace}`, { metadata: {} }),
    read<{ items: DaemonSet[] }>(`/apis/apps/v1/namespaces/${namespace}/daemonsets`, { items: [] }),
    read<{ items: FailedPod[] }>(`/api/v1/namespaces/${namespace}/events?${failedCreate}`, { items: [] }),
  ]);
  return podFindings(namespace, own.metadata.labels ?? {}, sets.items, events.items);
}
