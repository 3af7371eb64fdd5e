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

/** Where a person typed a command that npm runs in the checkout's folder. */
export function callersFolder(environment: NodeJS.ProcessEnv = process.env): string {
  return environment.INIT_CWD ?? process.cwd();
}

/** Where the state of `npm start` is unless --state says otherwise. */
export function defaultStateFolder(environment: NodeJS.ProcessEnv = process.env): string {
  const base = environment.XDG_STATE_HOME ?? join(homedir(), ".local/state");
  return environment.SUBSTRATE_STATE ?? join(base, "substrate");
}

/** Where test clusters of real nodes keep what they have, each in a folder named by its number. */
export function clustersFolder(environment: NodeJS.ProcessEnv = process.env): string {
  return join(environment.XDG_STATE_HOME ?? join(homedir(), ".local/state"), "substrate-clusters");
}

/** What belongs to the process that starts the cluster (npm, a test runner) and not to the cluster's own. */
const foreignVariable = /^(npm_|VITEST|NODE_OPTIONS$|NODE_ENV$|TEST$|KUBECONFIG$)/;

/** The environment of the cluster's processes: this one's, with administrators' programs on PATH. */
export function partEnvironment(settings: ToolSettings): NodeJS.ProcessEnv {
  const own = Object.entries(settings.environment).filter(([name]) => !foreignVariable.test(name));
  const searchPath = [...new Set([...settings.searchPath, "/usr/sbin", "/usr/bin", "/sbin", "/bin"])];
  return {
    ...Object.fromEntries(own),
    PATH: searchPath.join(":"),
    // TypeScript that was stripped and compiled once is not compiled again at each start
    NODE_COMPILE_CACHE: join(settings.cacheDir, "../node-compile-cache"),
  };
}
