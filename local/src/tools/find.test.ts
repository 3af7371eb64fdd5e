import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { toolSettings, type ToolSettings } from "../config.ts";
import { StateFolder } from "../state-folder.ts";
import { cachedPath, findTool } from "./find.ts";
import { type Tool, toolTable } from "./table.ts";

describe("where a tool is found", () => {
  let folder: string;
  const [etcd] = toolTable.local as [Tool];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "find-"));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  function settings(environment: Record<string, string> = {}): ToolSettings {
    return toolSettings({ SUBSTRATE_CACHE: join(folder, "cache"), PATH: join(folder, "bin"), ...environment });
  }

  function program(path: string, output: string): string {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `#!/bin/sh\necho '${output}'\n`);
    chmodSync(path, 0o755);
    return path;
  }

  it("is nowhere on an empty machine", () => {
    expect(findTool(etcd, settings())).toBeUndefined();
  });

  it("passes over a program of PATH of another version", () => {
    program(join(folder, "bin/etcd"), "etcd Version: 3.4.0");
    expect(findTool(etcd, settings())).toBeUndefined();
    const path = program(join(folder, "bin/etcd"), "etcd Version: 3.7.1");
    expect(findTool(etcd, settings())).toEqual({ path, source: "PATH", version: "3.7.1" });
  });

  it("regression: a second start from a shell with a state folder's bin on PATH took the link of the first", () => {
    const state = StateFolder.open(join(folder, "state"));
    try {
      const path = program(join(folder, "bin/etcd"), "etcd Version: 3.7.1");
      symlinkSync(path, state.file("bin/etcd"));
      const searched = settings({ PATH: `${state.file("bin")}:${join(folder, "bin")}` });
      expect(findTool(etcd, searched)).toEqual({ path, source: "PATH", version: "3.7.1" });
      expect(findTool(etcd, settings({ PATH: state.file("bin") }))).toBeUndefined();
    } finally {
      state.close();
    }
  });

  it("prefers what was named, then what was built", () => {
    program(join(folder, "bin/etcd"), "etcd Version: 3.7.1");
    const built = program(cachedPath(etcd, settings()), "built");
    expect(findTool(etcd, settings())).toEqual({ path: built, source: "cache" });
    const named = program(join(folder, "mine"), "mine");
    expect(findTool(etcd, settings({ SUBSTRATE_ETCD: named }))).toEqual({ path: named, source: "SUBSTRATE_ETCD" });
  });

  it("refuses a named program that is none", () => {
    expect(() => findTool(etcd, settings({ SUBSTRATE_ETCD: "/nowhere/etcd" }))).toThrow(
      "SUBSTRATE_ETCD=/nowhere/etcd must be the absolute path of an executable etcd",
    );
  });
});
