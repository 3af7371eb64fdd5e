import { availableParallelism, hostname, release, totalmem } from "node:os";
import { readFileSync } from "node:fs";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { applyManifest } from "./control-plane/manifests.ts";

/** The machine's name as the API server allows it: lower-case letters, digits and dashes. */
export function nodeNameOfMachine(): string {
  const name = hostname()
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .slice(0, 60)
    .replaceAll(/^-+|-+$/g, "");
  return name === "" ? "local" : name;
}

/** Makes the Node object that a kubelet would make; people cordon it, the operator reads it. */
export async function applyNode(client: KubeClient, name: string, podAddress: string): Promise<void> {
  const node = {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      labels: { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" },
    },
  };
  await applyManifest(client, node);
  const time = new Date().toISOString();
  const resources = { cpu: `${availableParallelism()}`, memory: `${Math.floor(totalmem() / 1024)}Ki`, pods: "0" };
  const status = {
    capacity: resources,
    allocatable: resources,
    addresses: [{ type: "InternalIP", address: podAddress }],
    conditions: [
      {
        type: "Ready",
        status: "True",
        reason: "LocalCluster",
        message: "made by the local cluster; there is no kubelet",
        lastHeartbeatTime: time,
        lastTransitionTime: time,
      },
    ],
    nodeInfo: {
      machineID: "",
      systemUUID: "",
      bootID: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
      kernelVersion: release(),
      osImage: "",
      containerRuntimeVersion: "",
      kubeletVersion: "",
      kubeProxyVersion: "",
      operatingSystem: "linux",
      architecture: "amd64",
    },
  };
  await applyManifest(client, { ...node, status }, "/status");
}
