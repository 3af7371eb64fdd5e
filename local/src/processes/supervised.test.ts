import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { command } from "../command.ts";
import { SupervisedProcess } from "./supervised.ts";

describe("a supervised process", () => {
  let folder: string;
  let lines: string[];
  let supervised: SupervisedProcess | undefined;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "sup-"));
    lines = [];
  });
  afterEach(async () => {
    await supervised?.stop("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });

  function supervise(script: string, graceMs = 5_000, cleanup?: () => Promise<void>): SupervisedProcess {
    supervised = new SupervisedProcess({
      name: "part",
      command: () => ({ program: "/bin/sh", arguments: ["-c", script], environment: { PATH: "/usr/bin:/bin" } }),
      logFile: join(folder, "log"),
      recordFile: join(folder, "part.json"),
      graceMs,
      say: (line) => lines.push(line),
      ...(cleanup === undefined ? {} : { cleanup }),
    });
    return supervised;
  }
  const log = (): string => readFileSync(join(folder, "log"), "utf8");

  it("is started again when it ends by itself, after its cleanup, and says so", async () => {
    const cleanup = vi.fn(() => Promise.resolve());
    const process = supervise("echo started; exec sleep 60", 5_000, cleanup);
    await process.start();
    await vi.waitFor(() => {
      expect(log()).toBe("started\n");
    });
    process.signal("SIGKILL");
    await vi.waitFor(
      () => {
        expect(log()).toBe("started\nstarted\n");
      },
      { timeout: 5_000 },
    );
    expect(cleanup).toHaveBeenCalledTimes(1);
    expect(lines).toEqual([
      expect.stringMatching(/^part ended \(SIGKILL\): starting it again in 0\.25 s; its log is /),
    ]);
  });

  it("stays ended after stop, also while its next start is due", async () => {
    const process = supervise("exit 3");
    await process.start();
    await vi.waitFor(() => {
      expect(lines.length).toBeGreaterThan(0);
    });
    await process.stop();
    expect(process.identity).toBeUndefined();
    const said = lines.length;
    await process.stop();
    expect(lines.length).toBe(said);
  });

  it("regression: a start failed when the program had ended before it was looked at, as on a busy machine", async () => {
    const process = supervise("exit 3");
    const start = process.start();
    // the program is there by now; it ends before this process goes on
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
    await start;
    await vi.waitFor(() => {
      expect(lines).toEqual([expect.stringMatching(/^part ended \(3\): starting it again in 0\.25 s; /)]);
    });
  });

  it("is killed when it does not heed SIGTERM in time", async () => {
    const process = supervise("trap '' TERM; echo deaf; while :; do sleep 0.05; done", 200);
    await process.start();
    await vi.waitFor(() => {
      expect(log()).toBe("deaf\n");
    });
    await process.stop();
    expect(lines).toEqual(["part did not end within 0.2 s: killing it"]);
    expect(process.identity).toBeUndefined();
  });

  it("regression: a link to itself failed with `spawn ELOOP`, naming nothing", async () => {
    const link = join(folder, "kubectl");
    symlinkSync(link, link);
    await expect(command(link, [])).rejects.toThrow(`cannot start ${link}: spawn ELOOP`);
  });

  it("regression: stop waited for a start that hung, and then for one that could not hear it", async () => {
    const process = new SupervisedProcess({
      name: "part",
      command: () => ({ program: "/bin/sh", arguments: ["-c", "trap '' TERM; read -r go"], environment: {} }),
      logFile: join(folder, "log"),
      recordFile: join(folder, "part.json"),
      graceMs: 60_000,
      say: (line) => lines.push(line),
      prepare: (_child, signal) => delay(60_000, undefined, { signal }),
      heeds: () => false,
    });
    const start = process.start();
    const failed = expect(start).rejects.toThrow("aborted");
    await vi.waitFor(() => {
      expect(process.identity).toBeDefined();
    });
    await process.stop();
    await failed;
    expect(process.identity).toBeUndefined();
    expect(lines).toEqual([]);
  });

  it("fails to start when there is no such program", async () => {
    const process = new SupervisedProcess({
      name: "none",
      command: () => ({ program: join(folder, "none"), arguments: [], environment: {} }),
      logFile: join(folder, "log"),
      recordFile: join(folder, "none.json"),
      graceMs: 100,
      say: () => undefined,
    });
    await expect(process.start()).rejects.toThrow(`cannot start ${join(folder, "none")}: `);
    await process.stop();
  });
});
