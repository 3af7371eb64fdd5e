import { createLogger } from "@substrate/lib/log.ts";
import { listConnections, type TupleSide } from "@substrate/atelet/network/conntrack.ts";
import { Kernel } from "@substrate/atelet/network/kernel.ts";
import { loadLinux } from "@substrate/atelet/network/linux.ts";
import { decode, encode } from "@substrate/atelet/network/netlink.ts";
import { loadNftables } from "@substrate/atelet/network/nftables.ts";
import { NftActorNetwork } from "@substrate/atelet/network/nft-network.ts";
import { type SleepingImage, type Slot } from "@substrate/atelet/network/network.ts";
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
  forgetAfterMs: 50,
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

/** As when the kernel's table of connections was emptied. */
function forget(nodeAddress: string): void {
  new Kernel(loadLinux(), loadNftables()).forgetConnections(nodeAddress, ["original", "reply"]);
}

serveRemote({
  connections,
  forget,
  start: (slots: number[], parked: string[] = []) => network.start({ slots, parked }),
  acquire: () => network.acquire(),
  adopt: (index: number) => network.adopt(index),
  release: (slot: Slot) => network.release(slot),
  putAddress: (slot: Slot) => network.putAddress(slot),
  publish: (slot: Slot, ports: number[]) => network.publish(slot, ports),
  published: (slot: Slot) => network.published(slot),
  unpublish: (slot: Slot) => network.unpublish(slot),
  block: (slot: Slot) => network.block(slot),
  open: (slot: Slot) => network.open(slot),
  park: (slot: Slot, image: SleepingImage) => network.park(slot, image),
  unpark: (slot: Slot, image: SleepingImage) => network.unpark(slot, image),
  giveUp: (actor: string) => network.giveUp(actor),
  parkedCount: () => network.parkedCount,
  setRouters: (addresses: string[]) => network.setRouters(addresses),
  destroy: () => network.destroy(),
});
