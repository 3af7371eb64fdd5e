import { type SandboxSpec } from "../sandbox.ts";

/** runsc puts before what went wrong the steps that led there, which say nothing to who wrote the program. */
const steps = /(?:(?:running|starting)(?: root)? container: |starting sandbox: |creating process: )+/;
/** What follows them when it cannot make the program's first process. */
const notFound = /error finding executable ".*" in PATH/;
const notLoaded = /failed to load (\S+): (no such file or directory|permission denied|exec format error)/;
const noFolder = /failed to (?:create process|find initial) working directory ".*": (.*)/;

/**
 * Why a program could not be started, for the person whose Template it is; undefined when that isn't its Template's or
 * its image's fault, and runsc's own words are all there is.
 */
export function startFailure(
  { args, cwd, env }: Pick<SandboxSpec, "args" | "cwd" | "env">,
  said: string,
): string | undefined {
  if (notFound.test(said)) {
    const path = env.findLast((entry) => entry.startsWith("PATH="))?.slice("PATH=".length) ?? "";
    return `there is no program "${args[0] ?? ""}" in the image (PATH ${path}): ${fix}`;
  }
  const folder = noFolder.exec(said)?.[1];
  if (folder !== undefined) {
    return `its working directory "${cwd}" can't be used (${folder}): correct WORKDIR of the image`;
  }
  const [, path = "", why] = notLoaded.exec(said) ?? [];
  return why === undefined ? undefined : causes[why]?.(path);
}

const fix = "correct command and args of the Template's container";

const causes: Record<string, (path: string) => string> = {
  "no such file or directory": (path) =>
    `there is no program "${path}" in the image, or not the interpreter or loader that it names: ${fix}`,
  "permission denied": (path) =>
    `"${path}" may not be executed (permission denied): ${fix}, or make it executable in the image`,
  "exec format error": (path) =>
    `"${path}" is no program that this node can run (exec format error): of another architecture, or a script without "#!"`,
};

export function withoutSteps(said: string): string {
  return said.replace(steps, "");
}
