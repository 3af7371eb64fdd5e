import { homedir } from "node:os";
import { join, resolve } from "node:path";

/** What the environment says about tools: the one place of local/ that reads it, beside `stateDirectory`. */
export interface ToolSettings {
  /** Built tools live in here, outside the checkout. */
  cacheDir: string;
  /** The folders of PATH. */
  searchPath: string[];
  /** SUBSTRATE_<TOOL> variables that are set, by variable name. */
  named: ReadonlyMap<string, string>;
  /** The environment that tools and builds are started with. */
  environment: NodeJS.ProcessEnv;
}

export function toolSettings(environment: NodeJS.ProcessEnv = process.env): ToolSettings {
  const base =
    environment.SUBSTRATE_CACHE ?? join(environment.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "substrate");
  const named = Object.entries(environment).filter(
    (entry): entry is [string, string] =>
      entry[0].startsWith("SUBSTRATE_") && entry[1] !== undefined && entry[1] !== "",
  );
  return {
    cacheDir: join(resolve(base), "tools"),
    searchPath: (environment.PATH ?? "").split(":").filter((folder) => folder.startsWith("/")),
    named: new Map(named),
    environment,
  };
}
