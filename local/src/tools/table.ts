import { satisfies } from "semver";

/** What `npm start` needs. */
export type LocalToolName =
  "etcd" | "kubeApiserver" | "kubeControllerManager" | "kubectl" | "runsc" | "crane" | "umoci";
/** What a test cluster of real nodes needs besides. */
export type ClusterToolName =
  "kubelet" | "kubeScheduler" | "kubeProxy" | "coredns" | "helm" | "versitygw" | "testpod" | "luaHealth";
/** Flux's controllers. */
export type FluxToolName = "sourceController" | "kustomizeController";
export type ToolName = LocalToolName | ClusterToolName | FluxToolName;

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
  /** Folder of the package's module that is put beside the program, under its last name. */
  manifests?: string;
  /** For the progress line: roughly how long a first build takes on two cores. */
  buildTakes: string;
}

const KUBERNETES = "1.34.4";
/** Snapshots are only restored by the build that wrote them: the stamp tells builds apart. */
const RUNSC = "20260905-substrate.2";

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

/**
 * "local": `npm start` and most tests; "cluster": besides, what `node local/setup.mjs --with-cluster` gets; "flux":
 * besides, `--with-flux`, for `npm run test:full` (`npm test` uses them if they are there).
 */
export type ToolGroup = "local" | "cluster" | "flux";

const localTools: readonly Tool[] = [
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

const clusterTools: readonly Tool[] = [
  {
    ...kubernetes,
    name: "kubelet",
    binary: "kubelet",
    variable: "SUBSTRATE_KUBELET",
    package: "k8s.io/kubernetes/cmd/kubelet",
  },
  {
    ...kubernetes,
    name: "kubeScheduler",
    binary: "kube-scheduler",
    variable: "SUBSTRATE_KUBE_SCHEDULER",
    package: "k8s.io/kubernetes/cmd/kube-scheduler",
  },
  {
    ...kubernetes,
    name: "kubeProxy",
    binary: "kube-proxy",
    variable: "SUBSTRATE_KUBE_PROXY",
    package: "k8s.io/kubernetes/cmd/kube-proxy",
  },
  {
    name: "testpod",
    binary: "substrate-testpod",
    variable: "SUBSTRATE_TESTPOD",
    version: "1",
    module: "testpod",
    package: ".",
    ldflags: "-s -w",
    versionArguments: ["version"],
    // only the one that belongs to this checkout
    fittingVersion: () => undefined,
    buildTakes: "10 s",
  },
  {
    name: "luaHealth",
    binary: "substrate-lua-health",
    variable: "SUBSTRATE_LUA_HEALTH",
    version: "1",
    module: "lua-health",
    package: ".",
    ldflags: "-s -w",
    versionArguments: ["version"],
    // only the one that belongs to this checkout
    fittingVersion: () => undefined,
    buildTakes: "10 s",
  },
  {
    name: "versitygw",
    binary: "versitygw",
    variable: "SUBSTRATE_VERSITYGW",
    version: "1.8.0",
    module: "versitygw",
    package: "github.com/versity/versitygw/cmd/versitygw",
    ldflags: "-s -w -X main.Version=v1.8.0",
    versionArguments: ["--version"],
    fittingVersion: within("~1.8.0"),
    buildTakes: "1 min",
  },
  {
    name: "helm",
    binary: "helm",
    variable: "SUBSTRATE_HELM",
    version: "3.22.0",
    module: "helm",
    package: "helm.sh/helm/v3/cmd/helm",
    ldflags: "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0",
    versionArguments: ["version", "--short"],
    fittingVersion: within(">=3.18.0 <4.0.0"),
    buildTakes: "1 min",
  },
  {
    name: "coredns",
    binary: "coredns",
    variable: "SUBSTRATE_COREDNS",
    version: "1.12.4",
    module: "coredns",
    // with few of its plugins
    package: ".",
    ldflags: "-s -w",
    versionArguments: ["-version"],
    fittingVersion: within("~1.12.0"),
    buildTakes: "1 min",
  },
];

const flux = {
  ldflags: "-s -w",
  manifests: "config/crd/bases",
  versionArguments: ["--version"],
  // neither says its version; and the CRDs have to be those of the program
  fittingVersion: () => undefined,
} as const;

const fluxTools: readonly Tool[] = [
  {
    ...flux,
    name: "sourceController",
    binary: "source-controller",
    variable: "SUBSTRATE_SOURCE_CONTROLLER",
    version: "1.8.0",
    module: "source-controller",
    package: "github.com/fluxcd/source-controller",
    buildTakes: "5 to 15 min",
  },
  {
    ...flux,
    name: "kustomizeController",
    binary: "kustomize-controller",
    variable: "SUBSTRATE_KUSTOMIZE_CONTROLLER",
    version: "1.9.6",
    module: "kustomize-controller",
    package: "github.com/fluxcd/kustomize-controller",
    buildTakes: "4 to 10 min",
  },
];

export const toolTable: Readonly<Record<ToolGroup, readonly Tool[]>> = {
  local: localTools,
  cluster: clusterTools,
  flux: fluxTools,
};
