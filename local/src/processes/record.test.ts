import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { identify, isAlive, readRecord, signalProcess, waitForEnd, writeRecord } from "./record.ts";

describe("a process's identity", () => {
  it("is not that of another process with its pid", async () => {
    const child = spawn("sleep", ["60"]);
    await once(child, "spawn");
    const identity = identify(child.pid ?? 0);
    if (identity === undefined) throw new Error("sleep does not run");
    const other = { ...identity, startTime: "1" };
    expect(isAlive(other)).toBe(false);
    signalProcess(other, "SIGKILL");
    expect(isAlive(identity)).toBe(true);
    signalProcess(identity, "SIGKILL");
    expect(await waitForEnd(identity, 5_000)).toBe(true);
    signalProcess(identity, "SIGKILL");
  });

  it("survives in a record; an empty one, as a power cut leaves it, is none", () => {
    const folder = mkdtempSync(join(tmpdir(), "rec-"));
    try {
      const path = join(folder, "a.json");
      expect(readRecord(path)).toBeUndefined();
      writeRecord(path, { pid: 1, startTime: "2" });
      expect(readRecord(path)).toEqual({ pid: 1, startTime: "2" });
      writeFileSync(path, "");
      expect(readRecord(path)).toBeUndefined();
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
