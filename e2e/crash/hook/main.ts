import { isMainThread } from "node:worker_threads";
import { patchAtelet } from "./atelet.ts";
import { patchOperator } from "./operator.ts";
import { CrashPoints } from "./points.ts";
import { hurrySupervisor } from "./supervisor.ts";

/**
 * Loaded before the program of every process of a test cluster (`--import`, by world.ts): makes the atelet and the
 * operator end at a chosen operation. The product does not know of it. The folder of the control files is in the query
 * of this module's URL.
 */
const folder = new URL(import.meta.url).searchParams.get("folder");
const script = process.argv[1] ?? "";
if (folder !== null && isMainThread) {
  if (script.endsWith("/atelet/src/main.ts")) await patchAtelet(new CrashPoints(folder, "atelet"));
  if (script.endsWith("/operator/src/main.ts")) patchOperator(new CrashPoints(folder, "operator"));
  if (script.endsWith("/atelet/src/supervisor/main.ts")) hurrySupervisor();
}
