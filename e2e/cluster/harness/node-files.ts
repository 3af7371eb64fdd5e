import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { type KeyPairFiles } from "@substrate/local/certificates.ts";
import { type Addresses, type NodeAddresses } from "./addresses.ts";
import { PAUSE_IMAGE } from "./images.ts";

export interface NodeFiles {
  /** Shell script that is the node's first process. */
  init: string;
  kubelet: string;
  proxy: string;
}

/**
 * What the node's first process does: its own /run, /var/lib and /var/log, then containerd until the end. As first
 * process of a pid namespace it reaps the shims' orphans. Nothing of it is seen outside.
 */
function initScript(node: NodeAddresses, folder: string): string {
  const bind = (path: string): string => `mount --bind '${join(folder, path.replaceAll("/", "-").slice(1))}' ${path}`;
  return `set -e
# other clusters' network namespaces would live as long as this node
for name in /run/netns/*; do umount -l "$name" 2>/dev/null || true; done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns
${bind("/var/lib")}
${bind("/var/log")}
# as systemd has it: hostPaths with mountPropagation need it
mount --make-rshared /
hostname ${node.name}
trap : TERM
containerd -c '${join(folder, "containerd.toml")}' >>'${join(folder, "containerd.log")}' 2>&1 &
containerd=$!
while kill -0 $containerd; do wait || true; sleep 1; done
`;
}

function containerdConfig(cluster: Addresses, certsFolder: string): string {
  return `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE_IMAGE}"
  # without CAP_SYS_RESOURCE runc cannot lower a score below its own, and no pod would start
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/var/lib/cni/conf"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "${certsFolder}"
`;
}

function cniConfig(node: NodeAddresses): object {
  return {
    cniVersion: "1.0.0",
    name: "cluster",
    plugins: [
      {
        type: "bridge",
        bridge: "cni0",
        isGateway: true,
        // pods keep their addresses between nodes
        ipMasq: false,
        hairpinMode: true,
        ipam: { type: "host-local", ranges: [[{ subnet: node.pods }]], routes: [{ dst: "0.0.0.0/0" }] },
      },
      { type: "portmap", capabilities: { portMappings: true } },
    ],
  };
}

function kubeletConfig(cluster: Addresses, node: NodeAddresses, authority: string, files: KeyPairFiles): object {
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    address: node.address,
    authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: authority } },
    authorization: { mode: "Webhook" },
    tlsCertFile: files.cert,
    tlsPrivateKeyFile: files.key,
    cgroupDriver: "cgroupfs",
    cgroupRoot: `/substrate-${node.cgroup}`,
    failCgroupV1: false,
    failSwapOn: false,
    clusterDNS: [cluster.dnsService],
    clusterDomain: "cluster.local",
    containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
    resolvConf: "",
    // the default is a folder of the machine
    volumePluginDir: "/var/lib/kubelet/volume-plugins",
    nodeStatusUpdateFrequency: "2s",
    nodeLeaseDurationSeconds: 10,
    // changed Secrets reach pods at the next round
    configMapAndSecretChangeDetectionStrategy: "Watch",
    syncFrequency: "10s",
    // the machine's, not the node's, is measured
    evictionHard: { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    imageGCHighThresholdPercent: 100,
  };
}

/** kube-proxy's configuration, for a node or for the control plane's own namespace. */
export function proxyConfig(cluster: Addresses, kubeconfig: string, nodeName: string): string {
  return stringify({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    clientConnection: { kubeconfig },
    mode: "iptables",
    clusterCIDR: cluster.pods,
    hostnameOverride: nodeName,
    // the machine's limit is no namespace's to set
    conntrack: { maxPerCore: 0 },
  });
}

export interface NodeFileOptions {
  cluster: Addresses;
  node: NodeAddresses;
  /** The node's own; its disk is in it. */
  folder: string;
  /** containerd's settings of registries. */
  certsFolder: string;
  authority: string;
  files: KeyPairFiles;
  proxyKubeconfig: string;
}

/** Writes everything that the node's programs read. What the node itself has stored stays. */
export function writeNodeFiles(options: NodeFileOptions): NodeFiles {
  const { cluster, node, folder } = options;
  const disk = join(folder, "var-lib");
  for (const path of [join(disk, "cni/conf"), join(disk, "kubelet"), join(folder, "var-log")]) {
    mkdirSync(path, { recursive: true });
  }
  const write = (name: string, content: string): string => {
    const path = join(folder, name);
    writeFileSync(path, content, { mode: 0o600 });
    return path;
  };
  write("containerd.toml", containerdConfig(cluster, options.certsFolder));
  write("var-lib/cni/conf/10-cluster.conflist", JSON.stringify(cniConfig(node)));
  return {
    init: write("init.sh", initScript(node, folder)),
    kubelet: write("kubelet.yaml", stringify(kubeletConfig(cluster, node, options.authority, options.files))),
    proxy: write("proxy.yaml", proxyConfig(cluster, options.proxyKubeconfig, node.name)),
  };
}
