import { startLocalCluster } from "@substrate/local/cluster.ts";

/** A process whose cluster is left behind when it is killed. Prints the cluster's id when all is ready. */
const [stateDir] = process.argv.slice(2);
if (stateDir === undefined) throw new Error("usage: holder.ts STATE_DIR");
const cluster = await startLocalCluster({ stateDir, fsync: false, say: () => undefined });
process.stdout.write(`${cluster.id}\n`);
setInterval(() => undefined, 60_000);
