import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { toolSettings } from "@substrate/local/config.ts";
import { StateFolder } from "@substrate/local/state-folder.ts";
import { removeLeftovers } from "@substrate/local/leftovers.ts";
import { tour } from "@substrate/local/tour.ts";
import { belongings } from "../support/leftovers.ts";
import { eventually } from "../support/poll.ts";

const repository = join(import.meta.dirname, "../..");
const READY_MS = 120_000;

/** The text of the fenced blocks of one language below a heading of a page. */
function blocks(page: string, heading: string, language: string): string[] {
  const text = readFileSync(join(repository, page), "utf8");
  const section = text.split(/^## /m).find((part) => part.startsWith(`${heading}\n`));
  if (section === undefined) throw new Error(`${page} has no heading "${heading}"`);
  return [...section.matchAll(/^```(\w*)\n(.*?)^```$/gms)].flatMap(([, fence, body]) =>
    fence === language && body !== undefined ? [body] : [],
  );
}

/** `npm start` without the setup, as the leader of a process group, which a terminal's Ctrl-C goes to. */
class Start {
  output = "";
  readonly stateDir: string;
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;

  constructor(stateDir: string) {
    this.stateDir = stateDir;
    const args = [join(repository, "local/src/main.ts"), "--state", stateDir];
    this.#child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"], detached: true });
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on("data", (chunk: Buffer) => (this.output += chunk.toString()));
    this.#exit = once(this.#child, "close");
  }

  /** Resolves with the exit code. */
  async interrupt(): Promise<number | null> {
    if (this.#child.exitCode === null) process.kill(-(this.#child.pid ?? 0), "SIGINT");
    await this.#exit;
    return this.#child.exitCode;
  }

  async waitFor(what: string, isThere: () => boolean): Promise<void> {
    await eventually(
      () => {
        if (!isThere() && this.#child.exitCode === null) throw new Error(`no ${what} yet:\n${this.output}`);
      },
      { deadlineMs: READY_MS, everyMs: 20 },
    );
    if (!isThere()) throw new Error(`ended with ${String(this.#child.exitCode)} and no ${what}:\n${this.output}`);
  }
}

describe("what the pages and npm start show", () => {
  let folder: string;
  let start: Start;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "sub-"));
    start = new Start(join(folder, "s"));
    await start.waitFor("tour", () => start.output.includes("kubectl describe actor"));
  });
  afterAll(async () => {
    await start.interrupt();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Runs lines in one shell that pasted the printed export lines before; ends at the first that fails. */
  function paste(script: string): string {
    const exports = start.output.split("\n").filter((line) => line.startsWith("  export "));
    expect(exports).toHaveLength(3);
    const home = join(folder, "home");
    mkdirSync(home, { recursive: true });
    const { environment, cacheDir } = toolSettings();
    const go = spawnSync("go", ["env", "GOCACHE", "GOMODCACHE"], { encoding: "utf8" }).stdout.split("\n");
    const { status, stdout, stderr } = spawnSync("bash", ["-euo", "pipefail"], {
      cwd: repository,
      encoding: "utf8",
      input: [...exports, script].join("\n"),
      timeout: READY_MS,
      env: {
        PATH: environment.PATH,
        HOME: home,
        SUBSTRATE_CACHE: dirname(cacheDir),
        GOCACHE: go[0],
        GOMODCACHE: go[1],
      },
    });
    if (status !== 0) throw new Error(`ended with ${String(status)}:\n${stdout}\n${stderr}`);
    return stdout;
  }

  it("README.md shows the tour that npm start prints, and it goes as its comments say", () => {
    expect(blocks("README.md", "A tour of two minutes", "sh")).toEqual([tour]);
    expect(start.output).toContain(tour.split("\n")[0]);
    const output = paste(tour);
    for (const count of [
      '{"memory":1,"file":1,"pid":1,',
      '{"memory":2,"file":2,"pid":1,',
      '{"memory":3,"file":3,"pid":1,',
    ])
      expect(output).toContain(count);
    expect(output).toContain("SUSPENDED");
  });

  it("docs/tasks/own-program.md makes an image without a registry and runs it", () => {
    const [build = "", run = "", ...more] = blocks("docs/tasks/own-program.md", "Without a registry", "sh");
    expect(more).toEqual([]);
    const output = paste(`${build}\n${run}`);
    expect(output).toContain(`oci:${join(folder, "home/hello/image")}@sha256:`);
    expect(output).toContain("Good day, visit 1\n");
    expect(output).toContain("Good day, visit 2\n");
  });
});

describe("Ctrl-C while a cluster starts", () => {
  it.each(["run/etcd.json", "run/atelet.json", "run/operator.json"])(
    "regression: hung for up to a minute; given up when %s is there, all ends at once and in silence",
    async (file) => {
      const folder = mkdtempSync(join(tmpdir(), "sub-"));
      const start = new Start(join(folder, "s"));
      try {
        await start.waitFor(file, () => existsSync(join(start.stateDir, file)));
        expect(await start.interrupt()).toBe(1);
        expect(start.output).toMatch(/\nstart: given up \(SIGINT\); nothing is left running\n$/);
        expect(start.output).not.toMatch(/atelet did not end|not registered|ended with/);
        const state = StateFolder.open(start.stateDir);
        const left = belongings(start.stateDir, state.id);
        await removeLeftovers(state, () => undefined);
        state.close();
        expect(left).toEqual([]);
      } finally {
        await start.interrupt();
        rmSync(folder, { recursive: true, force: true });
      }
    },
  );
});
