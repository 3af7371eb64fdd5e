import { createLogger } from "@substrate/lib/log.ts";
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

serveRemote({
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
