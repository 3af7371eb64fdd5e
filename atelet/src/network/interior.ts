/** What every actor sees of the network, the same everywhere so that clones and moves work (design.md §8). */
export const interior = {
  address: "169.254.17.2",
  gateway: "169.254.17.1",
  prefix: 30,
  mac: "02:00:a9:fe:11:02",
  gatewayMac: "02:00:a9:fe:11:01",
  device: "eth0",
} as const;

/** Indices of slots: the last two bytes of the node address, without the ends of the range. */
export const maxIndex = 65_000;

/** 100.64.x.y: unique in the pod, never seen by the program. */
export function nodeAddressOf(index: number): string {
  return `100.64.${index >> 8}.${index & 255}`;
}

/** The index that has this node address for its own. */
export function indexOfAddress(nodeAddress: string): number | undefined {
  const match = /^100\.64\.(\d{1,3})\.(\d{1,3})$/.exec(nodeAddress);
  const index = Number(match?.[1] ?? NaN) * 256 + Number(match?.[2] ?? NaN);
  return index >= 1 && index <= maxIndex ? index : undefined;
}

/** The pod's end of the veth. */
export function linkNameOf(index: number): string {
  return `a${index}`;
}

/** The index of a link name of ours. */
export function indexOf(linkName: string): number | undefined {
  const match = /^a([1-9]\d{0,4})$/.exec(linkName);
  const index = Number(match?.[1] ?? NaN);
  return index <= maxIndex ? index : undefined;
}
