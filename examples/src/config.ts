import { homedir } from "node:os";
import { join, resolve } from "node:path";

/** The folder that relative paths of a command line mean: npm runs scripts in the project's, wherever it was called. */
export function callersFolder(environment: NodeJS.ProcessEnv = process.env): string {
  return environment.INIT_CWD ?? process.cwd();
}

/** Where the images of the examples are kept, outside of the checkout, beside the built tools. */
export function imageCache(environment: NodeJS.ProcessEnv = process.env): string {
  const base =
    environment.SUBSTRATE_CACHE ?? join(environment.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "substrate");
  return join(resolve(base), "examples");
}

/** The environment of programs whose output is parsed: it must not depend on the caller's language. */
export function plainEnvironment(environment: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  return { ...environment, LC_ALL: "C" };
}
