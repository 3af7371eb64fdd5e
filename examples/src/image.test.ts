import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { callersFolder } from "./config.ts";

const script = join(import.meta.dirname, "image.ts");

/** The smallest file that counts as a static x86-64 program: a header without program headers. */
function staticProgram(machine = 62): Buffer {
  const header = Buffer.alloc(64);
  header.write("\u007fELF\u0002\u0001\u0001", "latin1");
  header.writeUInt16LE(machine, 18);
  return header;
}

describe("npm run image", () => {
  let folder: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "image-"));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  function file(name: string, content: string | Buffer, mode = 0o755): string {
    const path = join(folder, name);
    writeFileSync(path, content);
    chmodSync(path, mode);
    return path;
  }

  function image(...args: string[]): { stdout: string; stderr: string; status: number | null } {
    return spawnSync(process.execPath, [script, ...args], { encoding: "utf8", cwd: folder, env: {} });
  }

  function blob(digest: string): unknown {
    return JSON.parse(readFileSync(join(folder, "out/blobs/sha256", digest.replace("sha256:", "")), "utf8"));
  }

  it("prints the reference alone, and the image has what was asked for", () => {
    file("hello", staticProgram());
    mkdirSync(join(folder, "etc/app"), { recursive: true });
    file("etc/app/conf", "x=1", 0o640);
    symlinkSync("conf", join(folder, "etc/app/link"));
    const options = ["--out", "out", "--env", "A=b=c", "--port", "8080", "--user", "7:8", "--workdir", "/srv"];
    const { stdout, stderr } = image(...options, "hello:/bin/", "etc:/etc", "--", "hello", "-v", "--", "x");
    const digest = /^oci:(.*)@(sha256:[0-9a-f]{64})\n$/.exec(stdout);
    expect(digest?.[1], stderr).toBe(join(folder, "out"));
    const manifest = blob(digest?.[2] ?? "") as { config: { digest: string }; layers: { digest: string }[] };
    expect(blob(manifest.config.digest)).toMatchObject({
      architecture: "amd64",
      config: {
        Entrypoint: ["hello"],
        Cmd: ["-v", "--", "x"],
        Env: [expect.stringMatching(/^PATH=/), "A=b=c"],
        User: "7:8",
        WorkingDir: "/srv",
        ExposedPorts: { "8080/tcp": {} },
      },
    });
    const layer = join(folder, "out/blobs/sha256", manifest.layers[0]?.digest.replace("sha256:", "") ?? "");
    const listed = spawnSync("tar", ["-tvf", layer], { encoding: "utf8" }).stdout;
    expect(listed).toMatch(/^-rwxr-xr-x .* bin\/hello$/m);
    expect(listed).toMatch(/^-rw-r----- .* etc\/app\/conf$/m);
    expect(listed).toMatch(/^lrwxrwxrwx .* etc\/app\/link -> conf$/m);
  });

  it("takes relative paths from where npm was called", () => {
    expect(callersFolder({ INIT_CWD: "/somewhere" })).toBe("/somewhere");
  });

  it("follows links of a root file system to the command and to its interpreter", () => {
    mkdirSync(join(folder, "root/usr/bin"), { recursive: true });
    symlinkSync("usr/bin", join(folder, "root/bin"));
    file("root/usr/bin/busybox", staticProgram());
    symlinkSync("/bin/busybox", join(folder, "root/usr/bin/sh"));
    file("root/run", "#!/bin/sh\n");
    const { stdout, stderr } = image("--out", "out", "root", "--", "/run");
    expect(stdout, stderr).toMatch(/^oci:/);
  });

  it.each([
    { what: "no out", args: ["a", "--", "/a"], says: /--out DIR is missing/ },
    { what: "no source", args: ["--out", "out", "--", "/a"], says: /there is no SOURCE/ },
    { what: "no command", args: ["--out", "out", "static"], says: /there is no COMMAND: write it after another --/ },
    { what: "unknown option", args: ["--tag", "x", "static", "--", "/a"], says: /'--tag'/ },
    { what: "bad variable", args: ["--out", "out", "--env", "A", "static", "--", "/static"], says: /write NAME=VALUE/ },
    {
      what: "missing source",
      args: ["--out", "out", "gone:/a", "--", "/a"],
      says: /there is no .*\/gone; write SOURCE/,
    },
    {
      what: "other place",
      args: ["--out", "out", "static:/bin/", "--", "/static"],
      says: /it has \/bin\/static: name/,
    },
    { what: "not executable", args: ["--out", "out", "plain", "--", "/plain"], says: /chmod \+x .*\/plain/ },
    {
      what: "other processor",
      args: ["--out", "out", "arm", "--", "/arm"],
      says: /not built for x86-64: .*GOARCH=amd64/,
    },
    { what: "no program", args: ["--out", "out", "text", "--", "/text"], says: /neither a Linux program nor a script/ },
    { what: "dynamic", args: ["--out", "out", "dynamic", "--", "/dynamic"], says: /needs \/lib64\/ld-.*CGO_ENABLED=0/ },
    {
      what: "script",
      args: ["--out", "out", "script", "--", "/script"],
      says: /needs \/usr\/bin\/python3, which is not/,
    },
    { what: "foreign out", args: ["--out", "full", "static", "--", "/static"], says: /holds something else/ },
    { what: "out inside", args: ["--out", "full/out", "full", "--", "/x"], says: /lies in .*\/full, which goes into/ },
  ])("says what to do: $what", ({ args, says }) => {
    file("static", staticProgram());
    file("plain", staticProgram(), 0o644);
    file("arm", staticProgram(183));
    file("text", "hello\n");
    file("script", "#!/usr/bin/python3 -u\n");
    copyFileSync("/bin/ls", join(folder, "dynamic"));
    mkdirSync(join(folder, "full"));
    file("full/x", staticProgram());
    const { stdout, stderr, status } = image(...args);
    expect(stderr).toMatch(says);
    expect(stdout).toBe("");
    expect(status).toBe(1);
  });
});
