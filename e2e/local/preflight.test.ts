import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const setup = join(import.meta.dirname, "../../local/setup.mjs");

/** setup.mjs with programs of our own before those of the machine; the cache folder stays empty if nothing is changed. */
describe("setup on a machine that lacks something", () => {
  let folder: string;
  let cache: string;

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "sub-setup-"));
    cache = join(folder, "cache");
  });
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  function fakeProgram(name: string, script: string): string {
    const bin = mkdtempSync(join(folder, "bin-"));
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(bin, name), 0o755);
    return bin;
  }

  function run(environment: Record<string, string>, wrapper: readonly string[] = []) {
    const command = [...wrapper, process.execPath, setup];
    return spawnSync(command[0] ?? process.execPath, command.slice(1), {
      encoding: "utf8",
      env: { HOME: folder, SUBSTRATE_CACHE: cache, ...environment },
    });
  }

  it("says that Go is missing and how to get it, and changes nothing", () => {
    const bin = fakeProgram("npm", "echo 10");
    const { status, stderr } = run({ PATH: bin });
    expect(stderr).toContain("nothing has been changed");
    expect(stderr).toMatch(/Go is not on PATH.*install Go 1\.26\.3 or newer from https:\/\/go\.dev\/dl/);
    expect(status).toBe(1);
    expect(readdirSync(folder)).not.toContain("cache");
  });

  it("refuses an old Go that may not fetch a newer one, and takes one that may", () => {
    const old = fakeProgram("go", "echo go1.24.4; echo local");
    const npm = fakeProgram("npm", "echo 10");
    expect(run({ PATH: `${old}:${npm}:/usr/bin:/bin` }).stderr).toMatch(/go1\.24\.4 is too old.*GOTOOLCHAIN=auto/);
    const fetching = fakeProgram("go", "echo go1.24.4; echo auto");
    // an npm that fails ends the run before anything is installed; only the preflight's text is looked at
    expect(run({ PATH: `${fetching}:/nowhere` }).stderr).not.toContain("too old");
  });

  it("names every missing thing at once, without root too", () => {
    chmodSync(folder, 0o755);
    const { stderr, status } = run({ PATH: "/nowhere" }, ["/usr/bin/setpriv", "--reuid=65534", "--clear-groups"]);
    expect(stderr).toContain("run it as root");
    expect(stderr).toContain("Go is not on PATH");
    expect(stderr).toContain("npm is not on PATH");
    expect(status).toBe(1);
  });

  it("refuses a variable that names no program", () => {
    expect(run({ PATH: "/nowhere", SUBSTRATE_ETCD: "/nowhere/etcd" }).stderr).toContain(
      "SUBSTRATE_ETCD=/nowhere/etcd: name the absolute path of an executable, or unset it",
    );
  });

  it("says how much disk is needed where", () => {
    const go = fakeProgram("go", "echo go1.26.8; echo local");
    const npm = fakeProgram("npm", "echo 10");
    // a file system that every Linux has and that has no free space at all
    const { stderr, status } = run({ PATH: `${go}:${npm}`, SUBSTRATE_CACHE: "/sys/substrate" });
    expect(stderr).toMatch(/0\.0 GiB are free at \/sys, 8 GiB are needed: .*SUBSTRATE_CACHE/);
    expect(status).toBe(1);
  });
});
