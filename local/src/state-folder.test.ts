import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { StateFolder } from "./state-folder.ts";

describe("a state folder", () => {
  let folder: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "st-"));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  it("is used by one cluster at a time and remembers its settings", () => {
    const first = StateFolder.open(folder);
    expect(() => StateFolder.open(folder)).toThrow(
      /already runs on .* \(process \d+\): stop it, or name another folder/,
    );
    first.writeSettings({ format: 1, subnet: 7, ports: { router: 20_001 } });
    first.close();
    const second = StateFolder.open(folder);
    expect(second.id).toBe(first.id);
    expect(second.readSettings()).toEqual({ format: 1, subnet: 7, ports: { router: 20_001 } });
    second.close();
  });

  it("refuses a path that leaves no room for sockets", () => {
    expect(() => StateFolder.open(join(folder, "x".repeat(60)))).toThrow("name a shorter one with --state");
  });

  it("does not guess at settings of another version", () => {
    const state = StateFolder.open(folder);
    writeFileSync(state.file("settings.json"), '{"format":2}');
    expect(() => state.readSettings()).toThrow("was not written by this version");
    state.close();
  });
});
