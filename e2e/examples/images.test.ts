import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildOciLayout, type ImageFile } from "@substrate/examples/oci.ts";
import { systemNode } from "@substrate/examples/system-node.ts";
import { systemPython } from "@substrate/examples/system-python.ts";
import { systemTools } from "@substrate/examples/system-tools.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { unpack } from "./unpack.ts";

interface Interpreter {
  files: ImageFile[];
  env: string[];
  program: string;
}

/** A root file system with nothing but the image's layer, as a sandbox has it. */
describe("images made of what the machine has", { timeout: 120_000 }, () => {
  let folder: string;

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "images-"));
  });
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  async function runIn(name: string, interpreter: Interpreter, args: string[]): Promise<string> {
    const outDir = join(folder, name);
    const { files, env, program } = interpreter;
    const root = join(folder, `${name}-root`);
    unpack(await buildOciLayout({ name, files, config: {}, outDir }), root);
    const { stdout, stderr } = spawnSync("/usr/sbin/chroot", [root, program, ...args], {
      encoding: "utf8",
      env: Object.fromEntries(env.map((pair) => pair.split(/=(.*)/s) as [string, string])),
    });
    return stdout + stderr;
  }

  const check =
    "import sqlite3, ssl, mmap, http.server; print(sqlite3.connect(':memory:').execute('select 6*7').fetchone()[0])";

  // a machine with pyenv has its python3 first; Debian's is its own
  it.each(["python3", "/usr/bin/python3"])("%s runs with nothing of the machine around it", async (candidate) => {
    const python = await systemPython(join(folder, "cache"), [candidate]);
    const name = candidate.replaceAll("/", "-");
    expect(await runIn(name, python, ["-c", check])).toBe("42\n");
  });

  it("Node does, too", async () => {
    expect(await runIn("node", await systemNode(), ["-p", "require('node:crypto').randomUUID().length"])).toBe("36\n");
  });

  it("a shell and tar do, too: exec and cp need them", async () => {
    const tools = { ...(await systemTools()), program: "/bin/sh" };
    const line = "mkdir /new && cp /bin/cat /new && tar -cf - -C / new | tar -tf - && ls /new";
    expect(await runIn("tools", tools, ["-c", line])).toBe("new/\nnew/cat\ncat\n");
  });

  it("says what to install where there is no Python that will do", async () => {
    await expect(systemPython(join(folder, "cache"), ["/bin/false"])).rejects.toThrow(
      /no python3 with sqlite3, ssl, .* apt-get install python3/,
    );
    expect(existsSync(join(folder, "cache"))).toBe(true);
  });
});
