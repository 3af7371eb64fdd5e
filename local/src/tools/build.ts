import { spawn } from "node:child_process";
import { cpSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { z } from "zod";
import { type ToolSettings } from "../config.ts";
import { lock } from "../flock.ts";
import { cachedPath, findTool, moduleFolder } from "./find.ts";
import { copyChangedSource } from "./runsc-source.ts";
import { type Tool } from "./table.ts";

const BUILD_TIMEOUT_MS = 30 * 60_000;
const PROGRESS_EVERY_MS = 20_000;
const KEPT_LINES = 30;

export type Say = (line: string) => void;

interface GoRun {
  folder: string;
  arguments: readonly string[];
  settings: ToolSettings;
  /** Called for each line of stderr: `go build -v` names each package there. */
  onLine: (line: string) => void;
}

/** Runs go and returns its stdout. @throws with the end of its stderr if it fails or takes longer than 30 min. */
async function go(run: GoRun): Promise<string> {
  const child = spawn("go", run.arguments, {
    cwd: run.folder,
    env: { ...run.settings.environment, CGO_ENABLED: "0", GOFLAGS: "-buildvcs=false -mod=readonly", GOWORK: "off" },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: BUILD_TIMEOUT_MS,
  });
  const last: string[] = [];
  createInterface(child.stderr).on("line", (line) => {
    last.push(line);
    if (last.length > KEPT_LINES) last.shift();
    run.onLine(line);
  });
  const chunks: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
  const end = Promise.withResolvers<string>();
  child.once("error", end.reject);
  child.once("close", (code, signal) => {
    if (code === 0) end.resolve(Buffer.concat(chunks).toString("utf8"));
    else end.reject(new Error(`go ${run.arguments.join(" ")} ended with ${code ?? signal}:\n${last.join("\n")}`));
  });
  return end.promise;
}

/** Counts what `go` says and prints how far it is now and then. */
class Progress {
  readonly #started = performance.now();
  #compiled = 0;
  #downloaded = 0;
  readonly #timer: NodeJS.Timeout;

  constructor(what: string, say: Say) {
    this.#timer = setInterval(() => {
      say(
        `    ${what}: ${this.#downloaded} modules downloaded, ${this.#compiled} packages compiled, ${this.seconds()} s`,
      );
    }, PROGRESS_EVERY_MS);
  }

  readonly onLine = (line: string): void => {
    if (line.startsWith("go: downloading")) this.#downloaded += 1;
    else this.#compiled += 1;
  };

  seconds(): string {
    return ((performance.now() - this.#started) / 1000).toFixed(1);
  }

  end(): void {
    clearInterval(this.#timer);
  }
}

interface ModuleRun {
  folder: string;
  path: string;
  settings: ToolSettings;
  onLine: (line: string) => void;
}

/** Where the source of a module that go.mod requires is, downloaded if need be. */
async function moduleSource({ folder, path, settings, onLine }: ModuleRun): Promise<string> {
  const out = await go({ folder, arguments: ["mod", "download", "-json", path], settings, onLine });
  return z.object({ Dir: z.string() }).parse(JSON.parse(out)).Dir;
}

/** A folder with go.mod and go.sum in which `go build` makes runsc from the changed source. */
async function prepareRunsc(
  tool: Tool,
  work: string,
  settings: ToolSettings,
  onLine: (line: string) => void,
): Promise<string> {
  const folder = join(work, "module");
  cpSync(moduleFolder(tool), folder, { recursive: true });
  const source = await moduleSource({ folder, path: "gvisor.dev/gvisor", settings, onLine });
  copyChangedSource(source, join(folder, "src"));
  await go({ folder, arguments: ["mod", "edit", "-replace=gvisor.dev/gvisor=./src"], settings, onLine });
  return folder;
}

/** Builds the tools of one module together and moves each into its own folder of the cache. */
async function buildModule(tools: readonly [Tool, ...Tool[]], settings: ToolSettings, say: Say): Promise<void> {
  const [first] = tools;
  const names = tools.map((tool) => tool.binary).join(", ");
  say(`  building ${names} ${first.version} (a first build takes ${first.buildTakes} on two cores)`);
  const progress = new Progress(names, say);
  const work = mkdtempSync(join(settings.cacheDir, `.build-${first.module}-`));
  try {
    const folder =
      first.module === "runsc" ? await prepareRunsc(first, work, settings, progress.onLine) : moduleFolder(first);
    const out = join(work, "bin");
    mkdirSync(out);
    for (const tool of tools) mkdirSync(join(out, tool.name));
    // One run for all packages of a module would need outputs named by package; the shared build cache makes the
    // later ones cheap.
    for (const tool of tools) {
      const output = join(out, tool.name, tool.binary);
      await go({
        folder,
        arguments: ["build", "-v", "-trimpath", "-ldflags", tool.ldflags, "-o", output, tool.package],
        settings,
        onLine: progress.onLine,
      });
      if (tool.manifests !== undefined) {
        const source = await moduleSource({ folder, path: tool.package, settings, onLine: progress.onLine });
        cpSync(join(source, tool.manifests), join(out, tool.name, basename(tool.manifests)), { recursive: true });
      }
      const target = dirname(cachedPath(tool, settings));
      rmSync(target, { recursive: true, force: true });
      renameSync(join(out, tool.name), target);
    }
  } finally {
    progress.end();
    rmSync(work, { recursive: true, force: true });
  }
  say(`  built ${names} ${first.version} in ${progress.seconds()} s`);
}

/**
 * Builds what is missing, module by module. Safe to run several times at once: the module's lock is taken first, and
 * what another process built meanwhile is not built again.
 */
export async function buildTools(missing: readonly Tool[], settings: ToolSettings, say: Say): Promise<void> {
  mkdirSync(settings.cacheDir, { recursive: true });
  for (const module of new Set(missing.map((tool) => tool.module))) {
    const held = await lock(join(settings.cacheDir, `${module}.lock`), BUILD_TIMEOUT_MS, () => {
      say(`  waiting for another process that builds ${module}`);
    });
    try {
      // what builds that were killed have left
      for (const stale of globSync(join(settings.cacheDir, `.build-${module}-*`))) {
        rmSync(stale, { recursive: true, force: true });
      }
      const [first, ...rest] = missing.filter(
        (tool) => tool.module === module && findTool(tool, settings) === undefined,
      );
      if (first !== undefined) await buildModule([first, ...rest], settings, say);
    } finally {
      held.release();
    }
  }
}
