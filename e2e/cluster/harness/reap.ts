// Started beside each test cluster, under the slot's lock: runs when the cluster's starter is gone, however it ended.
import { removeUnlessKept } from "./state.ts";

await removeUnlessKept(Number(process.argv[2]));
