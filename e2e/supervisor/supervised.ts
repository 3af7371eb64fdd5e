import { fileURLToPath } from "node:url";
import { createLogger } from "@substrate/lib/log.ts";
import { superviseProcess } from "@substrate/atelet/supervisor/run.ts";

/** A real supervisor over the stub atelet, with quicker pings. */
const [stateDir, kubeconfigPath, namespace] = process.argv.slice(2);
if (stateDir === undefined || kubeconfigPath === undefined || namespace === undefined) {
  throw new Error("usage: supervised.ts STATE_DIR KUBECONFIG NAMESPACE");
}
superviseProcess(
  { nodeName: "n1", namespace, kubeconfigPath, stateDir, advertiseAddress: "10.0.0.2", port: 7443, graceMs: 1000 },
  {
    argv: [fileURLToPath(new URL("./stub-atelet.ts", import.meta.url)), stateDir],
    timing: { tickMs: 100, renewEveryMs: 200 },
  },
  createLogger("supervisor"),
);
