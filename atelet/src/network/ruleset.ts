import { interior } from "./interior.ts";

export const tableName = "ate";

/** How long an outer port rests after its use, so that a stale route meets a closed port. */
export const portRestSeconds = 600;

/** Where no actor may go unless a rule says so: special-purpose registry of IPv4 (RFC 6890) and RFC 1918. */
const alwaysDenied = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.168.0.0/16",
  "224.0.0.0/3",
];

export interface RulesetOptions {
  podInterface: string;
  podAddress: string;
  /** Besides the private, shared, link-local and multicast ranges. */
  denyCidrs: readonly string[];
  /** Name servers that stay reachable on port 53 though their address may be denied. */
  resolvers: readonly string[];
}

function elements(set: string, values: readonly string[]): string {
  const add = values.length === 0 ? "" : `add element ip ${tableName} ${set} { ${values.join(", ")} }\n`;
  return `flush set ip ${tableName} ${set}\n${add}`;
}

/**
 * The table as one transaction that can be run at any time: chains are replaced, the elements of actors, ports and
 * routers stay. Rewriting between the interior and the node address is stateless, outside connection tracking, so that
 * everything else sees unique addresses.
 */
export function renderRuleset(options: RulesetOptions): string {
  const { podInterface, podAddress } = options;
  const chains = ["raw", "pre", "forward", "input", "post", "last"].map((chain) => `c_${chain}`);
  return `
table ip ${tableName} {
 map src { type ifname : ipv4_addr; }
 map dn { type inet_service : ipv4_addr . inet_service; }
 set recent { type inet_service; flags timeout; timeout ${portRestSeconds}s; }
 set routers { type ipv4_addr; }
 set denied { type ipv4_addr; flags interval; auto-merge; }
 set resolvers { type ipv4_addr; }
 set blk { type ifname; }
 set asleep { type ipv4_addr; }
 set waking { type ifname; }
 chain c_raw { type filter hook prerouting priority -310; policy accept; }
 chain c_pre { type nat hook prerouting priority dstnat; policy accept; }
 chain c_forward { type filter hook forward priority 0; policy drop; }
 chain c_input { type filter hook input priority 0; policy accept; }
 chain c_post { type nat hook postrouting priority srcnat; policy accept; }
 chain c_last { type filter hook postrouting priority 310; policy accept; }
}
${chains.map((chain) => `flush chain ip ${tableName} ${chain}`).join("\n")}
${elements("denied", [...alwaysDenied, ...options.denyCidrs])}${elements("resolvers", options.resolvers)}
table ip ${tableName} {
 chain c_raw {
  iifname @blk drop
  iifname @waking tcp flags & rst == rst drop
  iifname @waking meta l4proto icmp drop
  iifname "a*" ip saddr != ${interior.address} drop
  iifname "a*" ip saddr set iifname map @src
  iifname "a*" ip saddr ${interior.address} drop
 }
 chain c_pre {
  iifname "${podInterface}" ip daddr ${podAddress} dnat ip to tcp dport map @dn
 }
 chain c_forward {
  iifname "${podInterface}" ct status dnat ip saddr != @routers meta l4proto tcp reject with tcp reset
  oifname "${podInterface}" ct status dnat ip daddr != @routers meta l4proto tcp reject with tcp reset
  iifname "${podInterface}" ip daddr @asleep reject with icmp host-unreachable
  iifname "${podInterface}" oifname != "a*" drop
  iifname "a*" tcp flags & (syn | rst) == 0x0 ct state new reject with tcp reset
  ct state established,related accept
  ct state invalid drop
  iifname "${podInterface}" oifname "a*" ct status dnat accept
  iifname "a*" oifname "a*" drop
  iifname "a*" oifname "${podInterface}" ip daddr @resolvers meta l4proto { tcp, udp } th dport 53 accept
  iifname "a*" ip daddr @denied drop
  iifname "a*" oifname "${podInterface}" accept
 }
 chain c_input {
  iifname "a*" ct state established ct direction reply accept
  iifname "a*" drop
  iifname "${podInterface}" tcp flags & (syn | ack | rst) != syn ct state invalid drop
 }
 chain c_post {
  iifname "a*" oifname "${podInterface}" masquerade
 }
 chain c_last {
  oifname @blk drop
  oifname "a*" ip daddr set ${interior.address}
 }
}
`;
}

export interface Mapping {
  outerPort: number;
  nodeAddress: string;
  containerPort: number;
}

function mappings(list: readonly Mapping[]): string {
  return list.map((m) => `${m.outerPort} : ${m.nodeAddress} . ${m.containerPort}`).join(", ");
}

/** Makes a link's packets carry its node address; blocked from the first moment. */
export function addSlot(link: string, nodeAddress: string): string {
  return `${block(link)}add element ip ${tableName} src { "${link}" : ${nodeAddress} }\n`;
}

/** Adding first makes a removal of what is not there no error. @param nodeAddress absent: it was parked. */
export function removeSlot(link: string, nodeAddress: string | undefined): string {
  const source =
    nodeAddress === undefined
      ? ""
      : `${addSlot(link, nodeAddress)}delete element ip ${tableName} src { "${link}" }\n${wake(nodeAddress)}`;
  return `${source}${unblock(link)}${awake(link)}`;
}

/** @param nodeAddress absent: it was parked. */
export function block(link: string, nodeAddress?: string): string {
  return `add element ip ${tableName} blk { "${link}" }\n${nodeAddress === undefined ? "" : asleep(nodeAddress)}`;
}

export function open(link: string, nodeAddress: string): string {
  return `${unblock(link)}${awake(link)}${wake(nodeAddress)}`;
}

/** Its peers hear that the address can't be reached now. @param mark what the next atelet is to know of it */
function asleep(nodeAddress: string, mark?: string): string {
  const comment = mark === undefined ? "" : ` comment "${mark}"`;
  return `add element ip ${tableName} asleep { ${nodeAddress}${comment} }\n`;
}

/** Its own stack answers again. */
function awake(link: string): string {
  return `add element ip ${tableName} waking { "${link}" }\ndelete element ip ${tableName} waking { "${link}" }\n`;
}

function unblock(link: string): string {
  return `${block(link)}delete element ip ${tableName} blk { "${link}" }\n`;
}

export function wake(nodeAddress: string): string {
  return `${asleep(nodeAddress)}delete element ip ${tableName} asleep { ${nodeAddress} }\n`;
}

/** The link has no address any more, and is nobody's. */
export function park(link: string, nodeAddress: string, mark: string): string {
  return `delete element ip ${tableName} src { "${link}" }\n${wake(nodeAddress)}${asleep(nodeAddress, mark)}`;
}

/**
 * Without its mark, whatever becomes of this restore, there is no second one with the address. Packets pass from now on:
 * what the program has to send again, it sends when its stack comes to life, and would not soon send a second time. Until
 * then only the namespace's bare kernel is there, which must not answer for it.
 */
export function unpark(link: string, nodeAddress: string): string {
  return (
    `delete element ip ${tableName} src { "${link}" }\nadd element ip ${tableName} src { "${link}" : ${nodeAddress} }\n` +
    `add element ip ${tableName} waking { "${link}" }\n${wake(nodeAddress)}${unblock(link)}`
  );
}

export function publish(list: readonly Mapping[]): string {
  return list.length === 0 ? "" : `add element ip ${tableName} dn { ${mappings(list)} }\n`;
}

/** The ports rest afterwards; the kernel remembers it, for the next atelet too. */
export function unpublish(list: readonly Mapping[]): string {
  if (list.length === 0) return "";
  const ports = list.map((m) => m.outerPort).join(", ");
  return `delete element ip ${tableName} dn { ${ports} }\nadd element ip ${tableName} recent { ${ports} }\n`;
}

export function routers(addresses: readonly string[]): string {
  return elements("routers", addresses);
}

export function removeTable(): string {
  return `add table ip ${tableName}\ndelete table ip ${tableName}\n`;
}
