import { toolSettings } from "@substrate/local/config.ts";
import { findTools, type ToolPaths } from "@substrate/local/tools/find.ts";

/** Absolute paths of the programs that `node local/setup.mjs` has put in place. */
export const tools: ToolPaths = findTools(toolSettings());
