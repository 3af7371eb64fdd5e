import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { toolSettings } from "@substrate/local/config.ts";
import { StateFolder } from "@substrate/local/state-folder.ts";
import { removeLeftovers } from "@substrate/local/leftovers.ts";
import { tour } from "@substrate/local/tour.ts";
import { type Block, commandsOf, pages } from "../docs/pages.ts";
import { repository } from "../docs/tables.ts";
import { belongings } from "../support/leftovers.ts";
import { eventually } from "../support/poll.ts";

const READY_MS = 120_000;
const PAGE_MS = 110_000;

/** Every page begins as a person does who has just started a cluster: with the counter, which has never run. */
function asAfterStart(stateDir: string): string {
  const all = "actors,snapshots,templates,secrets";
  return `kubectl delete ${all} --all --timeout=30s; kubectl apply -f ${join(stateDir, "examples/counter.yaml")}
    kubectl wait --for=condition=Ready actor/counter --timeout=30s`;
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
    const { status, stdout, signal } = spawnSync("bash", ["-euo", "pipefail"], {
      cwd: repository,
      encoding: "utf8",
      // what a page leaves running in the background ends with the page
      input: ["exec 2>&1", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT", ...exports, script].join("\n"),
      timeout: PAGE_MS,
      env: {
        PATH: environment.PATH,
        HOME: home,
        SUBSTRATE_CACHE: dirname(cacheDir),
        GOCACHE: go[0],
        GOMODCACHE: go[1],
      },
    });
    if (status !== 0) throw new Error(`ended with ${String(status ?? signal)}:\n${stdout}`);
    return stdout;
  }

  /** What a page's commands wrote, block by block. */
  function outputs(blocks: readonly Block[]): string[] {
    const marker = `-- ${randomUUID()}`;
    return paste(blocks.map(({ body }) => `${body}\necho; echo "${marker}"`).join("\n")).split(marker);
  }

  it("README.md shows the tour that npm start prints", () => {
    expect(commandsOf("README.md").map(({ body }) => body)).toContain(tour);
    expect(start.output).toContain(tour.split("\n")[0]);
  });

  it.each(pages.filter((page) => commandsOf(page).length > 0))("the commands of %s do what it says", (page) => {
    paste(asAfterStart(start.stateDir));
    const blocks = commandsOf(page);
    const written = outputs(blocks);
    for (const [index, { place, shows }] of blocks.entries()) {
      for (const text of shows) expect(written[index], place).toContain(text);
    }
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
