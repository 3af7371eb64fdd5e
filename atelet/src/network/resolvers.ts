import { readFileSync } from "node:fs";
import { isIPv4 } from "node:net";
import { type Logger } from "@substrate/lib/log.ts";

/** IPv4 name servers of a resolv.conf. One on loopback is only the pod's own and cannot serve actors. */
export function resolversOf(resolvConf: string): { usable: string[]; loopback: string[] } {
  const servers = resolvConf
    .split("\n")
    .map((line) => /^\s*nameserver\s+(\S+)/.exec(line)?.[1])
    .filter((address) => address !== undefined && isIPv4(address)) as string[];
  const unique = [...new Set(servers)];
  return {
    usable: unique.filter((address) => !address.startsWith("127.")),
    loopback: unique.filter((address) => address.startsWith("127.")),
  };
}

/** What an actor finds as its resolv.conf: the pod's, less the name servers that only the pod can reach. */
export function actorResolvConf(resolvConf: string): string {
  const { loopback } = resolversOf(resolvConf);
  const unusable = (line: string): boolean => loopback.some((address) => line.includes(address));
  return resolvConf
    .split("\n")
    .filter((line) => !/^\s*nameserver\s/.test(line) || !unusable(line))
    .join("\n");
}

export function readResolvers(log: Logger): string[] {
  const { usable, loopback } = resolversOf(readFileSync("/etc/resolv.conf", "utf8"));
  if (usable.length === 0) {
    log.warn("/etc/resolv.conf of this pod names no IPv4 name server that actors can reach: they have no DNS", {
      loopback,
    });
  }
  return usable;
}
