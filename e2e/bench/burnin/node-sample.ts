import { lstat, readdir, readFile, readlink, stat } from "node:fs/promises";
import { join } from "node:path";
import { type Ground } from "../snapshots/ground.ts";

const MIB = 2 ** 20;
const BLOCK_BYTES = 512;

/** What one moment costs the node. */
export interface NodeSample {
  atSeconds: number;
  /** Blocks of all files of the node's folder. */
  diskMib: number;
  /** Of files of that folder that are deleted and still open. */
  deletedHeldMib: number;
  /** Of the whole machine: waiting to be written or being written. */
  dirtyMib: number;
  /** What the bucket holds. */
  storedMib: number;
  ateletRssMib: number;
  /** Delay of the atelet's event loop since the last sample, p99. */
  loopDelayMs: number;
}

export async function sampleNode(ground: Ground, atSeconds: number): Promise<NodeSample> {
  const { cluster } = ground;
  const [pid, supervisor] = [cluster.pid("atelet"), cluster.pid("supervisor")];
  const metrics = await (await fetch(`${cluster.metricsUrls.atelet}/metrics`)).text();
  const delay = /^substrate_nodejs_eventloop_lag_p99_seconds(?:\{[^}]*\})? (\S+)$/m.exec(metrics)?.[1];
  return {
    atSeconds,
    diskMib: (await blocksBelow(cluster.nodeDir)) / MIB,
    deletedHeldMib: supervisor === undefined ? NaN : (await deletedHeldBytes(cluster.nodeDir, supervisor)) / MIB,
    dirtyMib: await dirtyMib(),
    storedMib: await ground.storedMib(),
    ateletRssMib: pid === undefined ? NaN : await rssMib(pid),
    loopDelayMs: Number(delay) * 1000,
  };
}

/** Runs what may meet a file or process that has just gone; `gone` then. */
async function unlessGone<T>(gone: T, look: () => Promise<T>): Promise<T> {
  try {
    return await look();
  } catch (error) {
    if (error instanceof Error && "code" in error && ["ENOENT", "ESRCH"].includes(String(error.code))) return gone;
    throw error;
  }
}

/** Bytes on disk; folders of mounts of other file systems count as empty. */
async function blocksBelow(dir: string): Promise<number> {
  const { dev } = await stat(dir);
  const seen = new Set<number>();
  const walk = async (folder: string): Promise<number> => {
    let bytes = 0;
    for (const name of await unlessGone<string[]>([], () => readdir(folder))) {
      const path = join(folder, name);
      const found = await unlessGone(undefined, () => lstat(path));
      if (found?.dev !== dev || seen.has(found.ino)) continue;
      seen.add(found.ino);
      bytes += found.blocks * BLOCK_BYTES;
      if (found.isDirectory()) bytes += await walk(path);
    }
    return bytes;
  };
  return walk(dir);
}

/** A process and all that it has started. */
async function descendants(root: number): Promise<number[]> {
  const children = new Map<number, number[]>();
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const text = await unlessGone("", () => readFile(`/proc/${pid}/stat`, "utf8"));
    // proc_pid_stat(5): the program's name may have spaces, fields are counted after it
    const parent = Number(text.slice(text.lastIndexOf(") ") + 2).split(" ")[1]);
    children.set(parent, [...(children.get(parent) ?? []), Number(pid)]);
  }
  const all = [root];
  for (const pid of all) all.push(...(children.get(pid) ?? []));
  return all;
}

async function deletedHeldBytes(dir: string, root: number): Promise<number> {
  const found = new Map<number, number>();
  for (const pid of await descendants(root)) {
    const folder = `/proc/${pid}/fd`;
    for (const fd of await unlessGone<string[]>([], () => readdir(folder))) {
      const path = join(folder, fd);
      const target = await unlessGone("", () => readlink(path));
      if (!target.startsWith(dir) || !target.endsWith(" (deleted)")) continue;
      const held = await unlessGone(undefined, () => stat(path));
      if (held !== undefined) found.set(held.ino, held.blocks * BLOCK_BYTES);
    }
  }
  return [...found.values()].reduce((sum, bytes) => sum + bytes, 0);
}

async function dirtyMib(): Promise<number> {
  const text = await readFile("/proc/meminfo", "utf8");
  const kib = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(text)?.[1]);
  return (kib("Dirty") + kib("Writeback")) / 1024;
}

async function rssMib(pid: number): Promise<number> {
  const path = `/proc/${pid}/status`;
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(await readFile(path, "utf8"))?.[1]) / 1024;
}
