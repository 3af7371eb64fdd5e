import { existsSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { randomInt } from "node:crypto";
import { command } from "../command.ts";

/** The pods of all local clusters of a machine take their /30 from 10.214.0.0/16. */
const SUBNETS = 16_384;
/** The route of the veth's own address has 0 and wins. */
const UNREACHABLE_METRIC = "4000";
const REMOVE_TIMEOUT_MS = 5_000;

/** The /30 with this index: its first address is the machine's end, its second the pod's. */
export function subnetAddresses(index: number): { range: string; host: string; pod: string } {
  const base = index * 4;
  const address = (offset: number): string => `10.214.${(base + offset) >> 8}.${(base + offset) & 255}`;
  return { range: `${address(0)}/30`, host: address(1), pod: address(2) };
}

function inUse(index: number): boolean {
  const { host, pod } = subnetAddresses(index);
  const addresses = [host, pod];
  return Object.values(networkInterfaces()).some((list) => list?.some((entry) => addresses.includes(entry.address)));
}

/** A /30 that no interface of the machine has: the remembered one if it is still unused. */
export function pickSubnet(remembered: number | undefined): number {
  let index = remembered ?? randomInt(SUBNETS);
  while (inUse(index)) index = randomInt(SUBNETS);
  return index;
}

/**
 * The pod's way to the machine: a veth pair, and one nftables table that lets the pod reach the API server and the
 * stores that it is given, which listen on loopback only, and nothing else of the machine.
 */
export class PodNetwork {
  readonly host: string;
  readonly pod: string;
  readonly #interface: string;
  readonly #table: string;
  readonly #ports: readonly number[];
  readonly #range: string;

  /** @param ports of the machine's loopback that the pod reaches at `host`. */
  constructor(id: string, subnet: number, ports: readonly number[]) {
    const { host, pod, range } = subnetAddresses(subnet);
    this.#range = range;
    this.host = host;
    this.pod = pod;
    this.#interface = `sub${id}`;
    this.#table = `substrate_${id}`;
    this.#ports = ports;
  }

  /**
   * While the pod is away, connections to it are refused at once. Without this route they would leave the machine by
   * its default route and hang until they time out.
   */
  async reserve(): Promise<void> {
    await command("ip", ["route", "replace", "unreachable", this.#range, "metric", UNREACHABLE_METRIC]);
  }

  /** Undoes `reserve`. */
  async release(): Promise<void> {
    const filter = ["type", "unreachable", "exact", this.#range];
    if ((await command("ip", ["route", "show", ...filter])).trim() === "") return;
    await command("ip", ["route", "del", "unreachable", this.#range, "metric", UNREACHABLE_METRIC]);
  }

  /** Makes the pair, its inner end as eth0 in the network namespace of `pid`, and the table. Given up, half may be there. */
  async create(pid: number, signal: AbortSignal): Promise<void> {
    const name = this.#interface;
    // the rules come first: there is no moment at which the pod could reach the machine without them
    await command("nft", ["-f", "-"], { input: this.#rules(), signal });
    await command("ip", ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", `${pid}`], { signal });
    // rules are for IPv4: the pair must not speak IPv6
    this.#sysctl(`net/ipv6/conf/${name}/disable_ipv6`, "1");
    // the kernel drops packets to 127.0.0.0/8 from outside unless told otherwise
    this.#sysctl(`net/ipv4/conf/${name}/route_localnet`, "1");
    const outer = `addr add ${this.host}/30 dev ${name}\nlink set ${name} up\n`;
    await command("ip", ["-batch", "-"], { input: outer, signal });
    const inner = `link set lo up\naddr add ${this.pod}/30 dev eth0\nlink set eth0 up\nroute add default via ${this.host}\n`;
    await command("nsenter", [`--net=/proc/${pid}/ns/net`, "ip", "-batch", "-"], { input: inner, signal });
  }

  /** Removes what there is of it. @throws if the interface is still there after 5 s. */
  async remove(): Promise<void> {
    const end = performance.now() + REMOVE_TIMEOUT_MS;
    // the kernel takes the pair away in the background when the pod's namespace ends, maybe at this very moment
    while (this.#exists()) {
      try {
        await command("ip", ["link", "del", this.#interface]);
      } catch (error) {
        if (this.#exists() && performance.now() > end) throw error;
      }
    }
    await command("nft", ["-f", "-"], { input: `table ip ${this.#table}\ndelete table ip ${this.#table}\n` });
  }

  #exists(): boolean {
    return existsSync(`/sys/class/net/${this.#interface}`);
  }

  #sysctl(key: string, value: string): void {
    const path = `/proc/sys/${key}`;
    // a kernel without IPv6 has no such file
    if (existsSync(path)) writeFileSync(path, value);
  }

  #rules(): string {
    const name = this.#interface;
    const ports = `{ ${this.#ports.join(", ")} }`;
    return `
table ip ${this.#table}
delete table ip ${this.#table}
table ip ${this.#table} {
  chain prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "${name}" ip daddr ${this.host} tcp dport ${ports} dnat to 127.0.0.1
  }
  chain raw {
    type filter hook prerouting priority raw; policy accept;
    iifname "${name}" ip daddr 127.0.0.0/8 drop
    iifname "${name}" ip saddr != ${this.pod} drop
  }
  chain input {
    type filter hook input priority filter; policy accept;
    iifname "${name}" ct state established,related accept
    iifname "${name}" ip daddr 127.0.0.1 tcp dport ${ports} ct status dnat accept
    iifname "${name}" drop
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${this.pod} oifname != { "${name}", "lo" } masquerade
  }
}
`;
  }
}
