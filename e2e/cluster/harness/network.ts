import { existsSync } from "node:fs";
import { command } from "@substrate/local/command.ts";
import { type Addresses, type NodeAddresses } from "./addresses.ts";

function namespacePath(name: string): string {
  return `/run/netns/${name}`;
}

/**
 * What starts a program in a network namespace: `ip netns exec` would mount another /sys.
 */
export function inNamespace(name: string, program: string, args: readonly string[]): readonly [string, ...string[]] {
  return ["nsenter", `--net=${namespacePath(name)}`, program, ...args];
}

async function ip(...args: string[]): Promise<void> {
  await command("ip", args);
}

/** The control plane's namespace is the cluster's switch and router; there is no way out of the machine from it. */
export async function makeControlPlaneNetwork(cluster: Addresses): Promise<void> {
  const { namespace, link, controlPlane, machine, range } = cluster;
  await ip("netns", "add", namespace);
  await ip("link", "add", link, "type", "veth", "peer", "name", "machine", "netns", namespace);
  const commands = [
    "link set lo up",
    "link add br0 type bridge",
    "link set machine master br0",
    "link set machine up",
    `addr add ${controlPlane}/24 dev br0`,
    "link set br0 up",
  ];
  await command("ip", ["-n", namespace, "-batch", "-"], { input: commands.join("\n") });
  // what one node sends to another passes the switch: no matter for the control plane's own rules
  await sysctl(namespace, "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=0");
  await ip("addr", "add", `${machine}/24`, "dev", link);
  await ip("link", "set", link, "up");
  await ip("route", "add", range, "via", controlPlane);
}

async function sysctl(namespace: string, ...settings: string[]): Promise<void> {
  await command("nsenter", [`--net=${namespacePath(namespace)}`, "sysctl", "-qw", ...settings]);
}

/** The node's namespace and its cable to the switch. */
export async function makeNodeNetwork(cluster: Addresses, node: NodeAddresses): Promise<void> {
  await ip("netns", "add", node.namespace);
  const inSwitch = [
    `link add ${node.port} type veth peer name eth0 netns ${node.namespace}`,
    `link set ${node.port} master br0`,
    `link set ${node.port} up`,
    `route replace ${node.pods} via ${node.address}`,
  ];
  await command("ip", ["-n", cluster.namespace, "-batch", "-"], { input: inSwitch.join("\n") });
  const inNode = [
    "link set lo up",
    `addr add ${node.address}/24 dev eth0`,
    "link set eth0 up",
    // other nodes' pods and services too: the switch knows the way
    `route add default via ${cluster.controlPlane}`,
  ];
  await command("ip", ["-n", node.namespace, "-batch", "-"], { input: inNode.join("\n") });
  // a pod that reaches another one of its node through a Service gets its answers through the same rules
  await sysctl(node.namespace, "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1");
}

/** Nothing happens if it is not there. */
export async function removeNodeNetwork(cluster: Addresses, node: NodeAddresses): Promise<void> {
  if (existsSync(namespacePath(cluster.namespace))) {
    const ports = await command("ip", ["-n", cluster.namespace, "-o", "link", "show"]);
    if (ports.includes(` ${node.port}@`)) await ip("-n", cluster.namespace, "link", "del", node.port);
  }
  if (existsSync(namespacePath(node.namespace))) await ip("netns", "del", node.namespace);
}

/** Names of the slot's network namespaces that are there. */
export async function namespacesOf({ namespace }: Addresses): Promise<string[]> {
  const names = (await command("ip", ["-o", "netns", "list"])).split("\n").map((line) => line.split(" ")[0] ?? "");
  return names.filter((name) => name === namespace || new RegExp(`^${namespace}n\\d+$`).test(name));
}

/** Processes in a network namespace. */
export async function processesIn(namespace: string): Promise<number[]> {
  return (await command("ip", ["netns", "pids", namespace])).split("\n").filter(Boolean).map(Number);
}

/** Removes the namespaces, and with them all interfaces and routes of the cluster. */
export async function removeNetwork(cluster: Addresses): Promise<void> {
  if (existsSync(`/sys/class/net/${cluster.link}`)) await ip("link", "del", cluster.link);
  for (const name of await namespacesOf(cluster)) await ip("netns", "del", name);
}
