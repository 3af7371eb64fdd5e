import { satisfies } from "semver";

export type ToolName = "etcd" | "kubeApiserver" | "kubeControllerManager" | "kubectl" | "runsc" | "crane" | "umoci";

/** A pinned program and how to come by it. */
export interface Tool {
  name: ToolName;
  binary: string;
  /** Naming a program here makes it be used, whatever its version. */
  variable: string;
  /** What is built when nothing else fits. */
  version: string;
  /** Folder under local/tools with its go.mod and go.sum. */
  module: string;
  package: string;
  ldflags: string;
  versionArguments: readonly string[];
  /** The version of a program of PATH that prints this when asked for it; undefined if it may not be used. */
  fittingVersion(output: string): string | undefined;
  /** For the progress line: roughly how long a first build takes on two cores. */
  buildTakes: string;
}

const KUBERNETES = "1.34.4";
/** Snapshots are only restored by the build that wrote them: the stamp tells builds apart. */
const RUNSC = "20260905-substrate.1";

/** The first x.y.z in the output if it is in the range. */
function within(range: string): (output: string) => string | undefined {
  return (output) => {
    const version = /\d+\.\d+\.\d+/.exec(output)?.[0];
    return version !== undefined && satisfies(version, range) ? version : undefined;
  };
}

const kubernetes = {
  version: KUBERNETES,
  module: "kubernetes",
  ldflags: `-s -w -X k8s.io/component-base/version.gitVersion=v${KUBERNETES}`,
  versionArguments: ["--version"],
  fittingVersion: within("~1.34.0"),
  buildTakes: "4 to 7 min",
} as const;

export const toolTable: readonly Tool[] = [
  {
    name: "etcd",
    binary: "etcd",
    variable: "SUBSTRATE_ETCD",
    version: "3.7.3",
    module: "etcd",
    package: "go.etcd.io/etcd/server/v3",
    ldflags: "-s -w",
    versionArguments: ["--version"],
    fittingVersion: within("~3.7.0"),
    buildTakes: "1 min",
  },
  {
    ...kubernetes,
    name: "kubeApiserver",
    binary: "kube-apiserver",
    variable: "SUBSTRATE_KUBE_APISERVER",
    package: "k8s.io/kubernetes/cmd/kube-apiserver",
  },
  {
    ...kubernetes,
    name: "kubeControllerManager",
    binary: "kube-controller-manager",
    variable: "SUBSTRATE_KUBE_CONTROLLER_MANAGER",
    package: "k8s.io/kubernetes/cmd/kube-controller-manager",
  },
  {
    ...kubernetes,
    name: "kubectl",
    binary: "kubectl",
    variable: "SUBSTRATE_KUBECTL",
    package: "k8s.io/kubernetes/cmd/kubectl",
    versionArguments: ["version", "--client"],
    // Two minor versions on either side of the API server. Kubernetes itself promises one (version skew policy);
    // what is used of it (server-side apply, wait, create --raw, plugins) has not changed within two.
    fittingVersion: within(">=1.32.0 <1.37.0"),
  },
  {
    name: "runsc",
    binary: "runsc",
    variable: "SUBSTRATE_RUNSC",
    version: RUNSC,
    module: "runsc",
    package: "gvisor.dev/gvisor/runsc",
    ldflags: `-s -w -X gvisor.dev/gvisor/runsc/version.version=${RUNSC}`,
    versionArguments: ["--version"],
    fittingVersion: (output) => (output.includes(RUNSC) ? RUNSC : undefined),
    buildTakes: "1 to 3 min",
  },
  {
    name: "crane",
    binary: "crane",
    variable: "SUBSTRATE_CRANE",
    version: "0.22.1",
    module: "crane",
    package: "github.com/google/go-containerregistry/cmd/crane",
    ldflags: "-s -w",
    versionArguments: ["version"],
    fittingVersion: within(">=0.20.0 <1.0.0"),
    buildTakes: "20 s",
  },
  {
    name: "umoci",
    binary: "umoci",
    variable: "SUBSTRATE_UMOCI",
    version: "0.5.1",
    module: "umoci",
    package: "github.com/opencontainers/umoci/cmd/umoci",
    ldflags: "-s -w",
    versionArguments: ["--version"],
    fittingVersion: within(">=0.5.0 <0.7.0"),
    buildTakes: "20 s",
  },
];
