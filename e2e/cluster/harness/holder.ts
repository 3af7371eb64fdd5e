// Holds a cluster of one node until it is killed, and says which: a starter for e2e/cluster/killed.test.ts.
import { TestCluster } from "./cluster.ts";

const cluster = await TestCluster.start({ nodes: 1 });
process.stdout.write(`${JSON.stringify({ slot: cluster.addresses.slot, folder: cluster.folder })}\n`);
setInterval(() => undefined, 60_000);
