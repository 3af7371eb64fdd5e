import { createLogger } from "@substrate/lib/log.ts";
import { listConnections, type TupleSide } from "@substrate/atelet/network/conntrack.ts";
import { loadLinux } from "@substrate/atelet/network/linux.ts";
import { decode, encode } from "@substrate/atelet/network/netlink.ts";
import { NftActorNetwork } from "@substrate/atelet/network/nft-network.ts";
import { type Slot } from "@substrate/atelet/network/network.ts";
import { serveRemote } from "./remote.ts";

/** The network of one atelet, in the pod's namespaces, driven by the test. */
const [dir, podAddress] = process.argv.slice(2);
if (dir === undefined || podAddress === undefined) throw new Error("usage: driver.ts DIR POD_ADDRESS");
const network = new NftActorNetwork({
  dir,
  podInterface: "eth0",
  podAddress,
  denyCidrs: ["198.51.100.128/25"],
  poolSize: 2,
  reservedPorts: [],
  log: createLogger("network-driver", "warn"),
});

/** How many connections of an actor the kernel tracks: from outside and to outside. */
function connections(nodeAddress: string): number {
  const socket = loadLinux().netlinkSocket("netfilter");
  const sides: TupleSide[] = ["original", "reply"];
  const counts = sides.map((side) => {
    socket.send(encode([listConnections(side, nodeAddress)]));
    let count = 0;
    for (;;) {
      const replies = decode(socket.receive());
      count += replies.bodies.length;
      if (replies.acknowledged > 0) return count;
    }
  });
  socket.close();
  return counts.reduce((sum, count) => sum + count);
}

serveRemote({
  connections,
  start: (keep: number[]) => network.start(keep),
  acquire: () => network.acquire(),
  adopt: (index: number) => network.adopt(index),
  release: (slot: Slot) => network.release(slot),
  putAddress: (slot: Slot) => network.putAddress(slot),
  publish: (slot: Slot, ports: number[]) => network.publish(slot, ports),
  published: (slot: Slot) => network.published(slot),
  unpublish: (slot: Slot) => network.unpublish(slot),
  block: (slot: Slot) => network.block(slot),
  open: (slot: Slot) => network.open(slot),
  setRouters: (addresses: string[]) => network.setRouters(addresses),
  destroy: () => network.destroy(),
});
