import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { copyFile, mkdir, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

import { detectCgroups } from "@substrate/atelet/cgroups/detect.ts";
import { type Cgroups } from "@substrate/atelet/cgroups/cgroups.ts";
import { GvisorRuntime } from "@substrate/atelet/sandbox/gvisor/runtime.ts";
import { type SandboxSpec } from "@substrate/atelet/sandbox/sandbox.ts";
import { createLogger } from "@substrate/lib/log.ts";

import { removeGroup } from "../support/cgroups.ts";
import { eventually } from "../support/poll.ts";

const run = promisify(execFile);

export interface Place {
  spec: SandboxSpec;
  url: string;
  /** Puts address and route back on the interior eth0, which the runtime takes off at every start. */
  putAddress(): Promise<void>;
}

/** A program with a root file system of its own, as its image's configuration says. */
export interface RigProgram {
  name: string;
  rootfsDir: string;
  args: readonly string[];
  env: readonly string[];
  cwd: string;
}

export interface RigOptions {
  runsc: string;
  /** Static binaries by name. */
  programs: Readonly<Record<"glutton" | "counter", string>>;
  /** Default: a group of its own below the root. */
  cgroupParent?: string;
}

/** Network namespaces, cgroups, folders and a runtime for sandboxes, all of their own names; `close` removes all. */
export class SandboxRig {
  readonly dir: string;
  readonly runtime: GvisorRuntime;
  readonly cgroups: Cgroups;
  readonly #tag: string;
  readonly #ownParent: string | undefined;
  readonly #runsc: string;
  readonly #places: Place[] = [];
  readonly #disks: string[] = [];

  private constructor(dir: string, tag: string, ownParent: string | undefined, cgroups: Cgroups, runsc: string) {
    this.dir = dir;
    this.#tag = tag;
    this.#ownParent = ownParent;
    this.#runsc = runsc;
    this.cgroups = cgroups;
    this.runtime = this.newRuntime();
  }

  static async open({ runsc, programs, cgroupParent }: RigOptions): Promise<SandboxRig> {
    const dir = await mkdtemp("/tmp/sbx-");
    const tag = randomBytes(2).toString("hex");
    const ownParent = cgroupParent === undefined ? `/substrate-test-${tag}` : undefined;
    const cgroups = await detectCgroups(cgroupParent ?? `/substrate-test-${tag}`);
    const rig = new SandboxRig(dir, tag, ownParent, cgroups, runsc);
    await rig.runtime.start();
    await mkdir(join(dir, "identity"));
    await mkdir(join(dir, "rootfs", "run", "ate"), { recursive: true });
    for (const name of ["proc", "dev", "sys", "tmp"]) await mkdir(join(dir, "rootfs", name));
    for (const [name, binary] of Object.entries(programs)) await copyFile(binary, join(dir, "rootfs", name));
    return rig;
  }

  /** A runtime as a restarted atelet would make it. */
  newRuntime(): GvisorRuntime {
    return new GvisorRuntime({
      runscPath: this.#runsc,
      rootDir: join(this.dir, "rt"),
      log: createLogger("sandbox-test", "error"),
    });
  }

  /** A network namespace and a spec for one sandbox. */
  async place(program: "glutton" | "counter" | RigProgram, limits: { memoryMiB: number }): Promise<Place> {
    const { name, rootfsDir, args, env, cwd } = typeof program === "string" ? this.#own(program) : program;
    const index = this.#places.length;
    const netns = `sbx-${this.#tag}-${index}`;
    const veth = `sb${this.#tag}${index}`;
    // 198.18.0.0/15 is for benchmarks: no route of the machine is hidden by it
    const net = `198.18.${Number.parseInt(this.#tag.slice(0, 2), 16)}`;
    const host = `${net}.${index * 4 + 1}`;
    const inside = `${net}.${index * 4 + 2}`;
    const id = randomBytes(16).toString("hex");
    const place: Place = {
      url: `http://${inside}:8080`,
      putAddress: async () => {
        await run("ip", ["-n", netns, "addr", "replace", `${inside}/30`, "dev", "eth0"]);
        await run("ip", ["-n", netns, "route", "replace", "default", "via", host]);
      },
      spec: {
        id,
        bundleDir: join(this.dir, `bundle-${index}`),
        rootfsDir,
        args,
        env,
        cwd,
        uid: 0,
        gid: 0,
        hostname: name,
        netnsPath: `/run/netns/${netns}`,
        identityDir: join(this.dir, "identity"),
        volumes: [],
        cgroupPath: await this.cgroups.create(id),
        memoryLimitBytes: (limits.memoryMiB + 32) * 1024 * 1024,
        cpuMillis: 1000,
        stdoutPath: join(this.dir, `stdout-${index}`),
        stderrPath: join(this.dir, `stderr-${index}`),
      },
    };
    this.#places.push(place);
    await run("ip", ["netns", "add", netns]);
    await run("ip", ["link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", netns]);
    await run("ip", ["addr", "add", `${host}/30`, "dev", veth]);
    await run("ip", ["link", "set", veth, "up"]);
    for (const link of ["lo", "eth0"]) await run("ip", ["-n", netns, "link", "set", link, "up"]);
    await place.putAddress();
    return place;
  }

  #own(name: "glutton" | "counter"): RigProgram {
    return { name, rootfsDir: join(this.dir, "rootfs"), args: [`/${name}`], env: ["PATH=/"], cwd: "/" };
  }

  /** Starts the program of a place and waits until it answers. */
  async start(place: Place): Promise<void> {
    await place.putAddress();
    await this.runtime.run(place.spec);
    await answer(place, "GET", "/");
  }

  async imageDir(name: string): Promise<string> {
    const dir = join(this.dir, `image-${name}`);
    await mkdir(dir);
    return dir;
  }

  /** A folder on a small disk of its own. */
  async fullDisk(name: string, sizeMiB: number): Promise<string> {
    const dir = await this.imageDir(name);
    await run("mount", ["-t", "tmpfs", "-o", `size=${sizeMiB}m`, "tmpfs", dir]);
    this.#disks.push(dir);
    return dir;
  }

  async close(): Promise<void> {
    for (const { id } of await this.runtime.list()) await this.runtime.delete(id);
    for (const disk of this.#disks) await run("umount", [disk]);
    await this.cgroups.destroy();
    if (this.#ownParent !== undefined) await removeGroup(this.#ownParent);
    for (const { spec } of this.#places) await run("ip", ["netns", "del", spec.netnsPath.replace("/run/netns/", "")]);
    await this.runtime.destroy();
    await rm(this.dir, { recursive: true, force: true });
  }
}

/** One HTTP request, repeated until it is answered. @throws Error with the status if that is not a 2xx. */
export async function answer(place: Pick<Place, "url">, method: "GET" | "POST", path: string): Promise<string> {
  const { status, body } = await eventually(
    async () => {
      const response = await fetch(place.url + path, { method, signal: AbortSignal.timeout(10_000) });
      return { status: response.status, body: await response.text() };
    },
    { deadlineMs: 20_000, everyMs: 10 },
  );
  if (status >= 300) throw new Error(`${method} ${path}: ${status} ${body}`);
  return body;
}
