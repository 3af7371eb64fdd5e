import { join } from "node:path";
import { stringify } from "yaml";
import { buildImages } from "@substrate/images/build.ts";
import { type ImageName } from "@substrate/images/table.ts";
import { type TestCluster } from "./cluster.ts";

export const chart = join(import.meta.dirname, "../../../charts/substrate");
/** Only the first start of a part on a busy machine needs more than seconds. */
const ROLLOUT_SECONDS = 180;
const STORE_SECRET = "substrate-store";

export interface InstallOptions {
  /** Default `substrate`. */
  release?: string;
  /** Default `substrate-system`; made if it is not there. */
  namespace?: string;
  /** Helm values over the store that the cluster has. */
  values?: object;
  /** Images of examples that nodes are to have besides those of the parts. Default: the counter. */
  examples?: readonly ImageName[];
  /** `there`: the nodes have those of the parts already. Default: they are given them. */
  images?: "load" | "there";
  /** Folder or archive of the chart. Default: that of this checkout. */
  chart?: string;
  /** Further flags of `helm upgrade --install`. */
  flags?: readonly string[];
  say?: (line: string) => void;
}

/** Builds the images of this checkout, if they are not there yet, and gives them to all nodes. */
export async function loadSubstrateImages(
  cluster: TestCluster,
  options: Pick<InstallOptions, "examples" | "say"> = {},
): Promise<void> {
  const names: ImageName[] = ["operator", "atelet", "router", ...(options.examples ?? ["counter" as const])];
  const say = options.say ?? (() => undefined);
  for (const { archive, reference } of await buildImages({ names, say })) {
    say(`loading ${reference}`);
    await cluster.loadImage({ path: archive });
  }
}

/** YAML of what has to be there before the chart: its namespace, and the Secret of the store. */
export function prerequisites({ s3 }: TestCluster, namespace: string): string {
  const { accessKeyId, secretAccessKey } = s3;
  const objects = [
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: STORE_SECRET, namespace },
      stringData: { accessKeyId, secretAccessKey },
    },
  ];
  return objects.map((object) => stringify(object)).join("---\n");
}

/** The chart's values for the cluster's own object store. */
export function storeValues(cluster: TestCluster): object {
  return { stores: { default: { url: storeUrl(cluster), credentialsSecret: STORE_SECRET } } };
}

/** The chart with the cluster's own object store; resolves when all parts are rolled out. */
export async function installSubstrate(cluster: TestCluster, options: InstallOptions = {}): Promise<void> {
  const { release = "substrate", namespace = "substrate-system", values = {} } = options;
  const say = options.say ?? (() => undefined);
  if (options.images !== "there") await loadSubstrateImages(cluster, options);
  await cluster.kubectl(["apply", "-f", "-"], { input: prerequisites(cluster, namespace) });
  say(`helm install ${release}`);
  const flags = ["--namespace", namespace, "--values", "-", ...(options.flags ?? [])];
  await cluster.helm(["upgrade", "--install", release, options.chart ?? chart, ...flags], {
    input: stringify({ ...storeValues(cluster), ...values }),
  });
  const parts = `app.kubernetes.io/instance=${release}`;
  const timeout = `--timeout=${ROLLOUT_SECONDS}s`;
  await cluster.kubectl(
    ["rollout", "status", "deployments,daemonsets", "--namespace", namespace, "--selector", parts, timeout],
    { timeoutMs: (ROLLOUT_SECONDS + 30) * 1000 },
  );
}

/** The cluster's bucket as the chart's `stores` and the atelet's --store name it. */
function storeUrl({ s3 }: TestCluster): string {
  const query = new URLSearchParams({ endpoint: s3.url, region: "us-east-1", pathStyle: "true" });
  return `s3://${s3.bucket}?${query.toString()}`;
}
