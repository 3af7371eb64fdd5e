import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type SandboxSpec } from "../sandbox.ts";
import { GvisorRuntime } from "./runtime.ts";

let dir: string;
let runtime: GvisorRuntime;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "runtime-"));
  // tells what it was asked for, and fails; a build that nobody knows is given commands, and not asked directly
  const version = `case "$*" in *--version*) echo runsc version foreign; exit 0;; esac`;
  await writeFile(join(dir, "runsc"), `#!/bin/sh\n${version}\necho "$@" >> ${dir}/asked\nexit 1\n`, { mode: 0o755 });
  for (const name of ["image", "bundle", "s", "r", "l"]) await mkdir(join(dir, name));
  // as small as an image can be: no page of memory
  await writeFile(join(dir, "image", "checkpoint.img"), "gVisorSF");
  await writeFile(join(dir, "image", "pages_meta.img"), Buffer.alloc(8));
  await writeFile(join(dir, "image", "pages.img"), "");
  const log = createLogger("test", "crit");
  log.silent = true;
  runtime = new GvisorRuntime({ runscPath: join(dir, "runsc"), rootDir: dir, log });
});
afterEach(() => rm(dir, { recursive: true }));

const id = "0123456789abcdef0123456789abcdef";

function spec(): SandboxSpec {
  return {
    id,
    bundleDir: join(dir, "bundle"),
    rootfsDir: "/nowhere",
    args: ["/program"],
    env: [],
    cwd: "/",
    uid: 0,
    gid: 0,
    hostname: "a",
    netnsPath: "/nowhere",
    identityDir: "/nowhere",
    volumes: [],
    cgroupPath: "/a",
    memoryLimitBytes: 1,
    cpuMillis: 1000,
    stdoutPath: join(dir, "out"),
    stderrPath: join(dir, "err"),
  };
}

/** The words of the one command of that name. */
async function asked(command: string): Promise<string[]> {
  const lines = (await readFile(join(dir, "asked"), "utf8")).split("\n").map((line) => line.split(" "));
  return lines.find((words) => words.includes(command)) ?? [];
}

it.each([true, false])(
  "R20, R27: restores the image where it is, around the page cache only if asked: %s",
  async (direct) => {
    const imageDir = join(dir, "image");
    const restored = runtime.restore(spec(), { imageDir, direct, keepConnections: false });
    await expect(restored).rejects.toMatchObject({ code: "RESTORE_FAILED" });
    const words = await asked("restore");
    expect([words.includes(`--image-path=${imageDir}`), words.includes("--direct")]).toEqual([true, direct]);
  },
);

it.each([true, false])("R6: writes an image around the page cache only if asked: %s", async (direct) => {
  const imageDir = join(dir, "new");
  await mkdir(imageDir);
  await expect(runtime.checkpoint(id, imageDir, { direct })).rejects.toMatchObject({ code: "CHECKPOINT_FAILED" });
  const words = await asked("checkpoint");
  expect([words.includes(`--image-path=${imageDir}`), words.includes("--direct")]).toEqual([true, direct]);
});
