/** Clusters that may run at once on one machine. */
export const SLOTS = 16;
/** 10.216.0.0/16 is the first cluster's, 10.231.0.0/16 the last one's; local clusters have 10.214 and 10.215. */
const FIRST_OCTET = 216;
/** Pods of node N are in 10.S.(16+N).0/24, within 10.S.16.0/20. */
export const MAX_NODES = 14;

/** Names and addresses of the cluster in one slot. All of them follow from the slot, so that what is left can be found. */
export interface Addresses {
  slot: number;
  /** Everything of the cluster: nodes, services, pods. */
  range: string;
  /** API server, registry, S3 server and resolver, in a network namespace of their own. */
  controlPlane: string;
  /** The machine's own leg. */
  machine: string;
  services: string;
  /** Of the Service `kubernetes`. */
  apiService: string;
  /** Of the Service `kube-dns`. */
  dnsService: string;
  pods: string;
  /** Network namespace of the control plane. */
  namespace: string;
  /** The machine's interface into it. */
  link: string;
}

export interface NodeAddresses {
  /** `n1` … */
  name: string;
  address: string;
  pods: string;
  /** Network namespace. */
  namespace: string;
  /** Its port at the switch, in the control plane's namespace. */
  port: string;
  /** Part of the name of its control group. */
  cgroup: string;
}

export function addressesOf(slot: number): Addresses {
  const prefix = `10.${FIRST_OCTET + slot}`;
  return {
    slot,
    range: `${prefix}.0.0/16`,
    controlPlane: `${prefix}.0.1`,
    machine: `${prefix}.0.254`,
    services: `${prefix}.1.0/24`,
    apiService: `${prefix}.1.1`,
    dnsService: `${prefix}.1.10`,
    pods: `${prefix}.16.0/20`,
    namespace: `subc${slot}`,
    link: `subc${slot}`,
  };
}

/** @param number from 1. */
export function nodeAddresses({ slot }: Addresses, number: number): NodeAddresses {
  if (number < 1 || number > MAX_NODES) throw new RangeError(`a cluster has 1 to ${MAX_NODES} nodes, not ${number}`);
  const prefix = `10.${FIRST_OCTET + slot}`;
  return {
    name: `n${number}`,
    address: `${prefix}.0.${10 + number}`,
    pods: `${prefix}.${16 + number}.0/24`,
    namespace: `subc${slot}n${number}`,
    port: `n${number}`,
    cgroup: `c${slot}-n${number}`,
  };
}
