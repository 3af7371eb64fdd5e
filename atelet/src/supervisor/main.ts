import { fileURLToPath } from "node:url";
import { createLogger } from "@substrate/lib/log.ts";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { enterSupervisorLeaf } from "../cgroups/supervisor-leaf.ts";
import { readConfig } from "../config.ts";
import { HEAP_OPTIONS } from "./heap-options.ts";
import { superviseProcess } from "./run.ts";

const config = readConfig();
superviseProcess(
  config,
  {
    argv: [
      ...HEAP_OPTIONS,
      fileURLToPath(scriptUrl(new URL("../main.ts", import.meta.url), "atelet.mjs")),
      ...process.argv.slice(2),
    ],
    prepare: () => {
      enterSupervisorLeaf(config.cgroupParent);
    },
  },
  createLogger("supervisor", config.logLevel).child({ node: config.nodeName }),
);
