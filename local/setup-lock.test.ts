import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

const module = pathToFileURL(join(import.meta.dirname, "setup-lock.mjs")).href;

/** Says what it waits for and that it holds the lock, and lets it go when its standard input ends. */
const script = (path: string, waitSeconds: number): string => `
  import { readFileSync, writeSync } from "node:fs";
  import { withSetupLock } from "${module}";
  const say = (line) => writeSync(1, line + "\\n");
  withSetupLock("${path}", { waitSeconds: ${waitSeconds}, say }, () => { say("holds it"); readFileSync(0); });
`;

describe("regression: two setups in one fresh checkout broke each other's npm ci", () => {
  let folder: string;
  let path: string;
  const children: ChildProcess[] = [];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "setup-lock-"));
    path = join(folder, "lock");
  });
  afterEach(() => {
    for (const child of children.splice(0)) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });

  function setup(waitSeconds: number) {
    const child = spawn(process.execPath, ["--input-type=module", "-e", script(path, waitSeconds)], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    children.push(child);
    const lines = child.stdout.setEncoding("utf8").iterator({ destroyOnReturn: false }) as AsyncIterator<string>;
    return { child, says: async () => String((await lines.next()).value) };
  }

  it("the second waits, says for whom, and goes on when the first is done", async () => {
    const first = setup(30);
    expect(await first.says()).toBe("holds it\n");
    const second = setup(30);
    expect(await second.says()).toBe(
      `another setup runs in this checkout (pid ${first.child.pid}), waiting at most 30 s for it\n`,
    );
    first.child.stdin.end();
    expect(await second.says()).toBe("holds it\n");
  });

  it("a killed one is not waited for", async () => {
    const first = setup(30);
    expect(await first.says()).toBe("holds it\n");
    const ended = once(first.child, "exit");
    first.child.kill("SIGKILL");
    await ended;
    expect(await setup(30).says()).toBe("holds it\n");
  });

  it("the wait is bounded and ends with what to do", async () => {
    const first = setup(30);
    expect(await first.says()).toBe("holds it\n");
    const second = spawnSync(process.execPath, ["--input-type=module", "-e", script(path, 1)], { encoding: "utf8" });
    expect(second.stderr).toContain(
      `another setup (pid ${first.child.pid}) has held ${path} for 1 s: end it and try again`,
    );
    expect(second.status).not.toBe(0);
  });
});
