import { readdir, readFile, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { SubstrateError } from "@substrate/lib/errors.ts";

export function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

/** The text of a control file; undefined if its group is gone or this kernel doesn't have it. */
export async function readControl(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    // ENODEV: the group is being removed
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENODEV") return undefined;
    throw error;
  }
}

/** Of a file of lines "name number"; 0 if the file or the line isn't there. */
export function counter(text: string | undefined, name: string): number {
  const line = text?.split("\n").find((candidate) => candidate.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1) ?? 0);
}

/** Process ids in a cgroup.procs. */
export function processIds(text: string): number[] {
  return text.split("\n").filter(Boolean).map(Number);
}

export async function processesIn(group: string): Promise<number[]> {
  return processIds((await readControl(join(group, "cgroup.procs"))) ?? "");
}

/** Names of the groups in a folder of groups; none if it isn't there. */
export async function groupsIn(folder: string): Promise<string[]> {
  try {
    const entries = await readdir(folder, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return [];
    throw error;
  }
}

/**
 * Removes a group as soon as it is empty. A missing one counts as removed.
 * @param deadlineMs of performance.now().
 * @returns false if it was still busy then.
 */
export async function removeGroup(folder: string, deadlineMs: number): Promise<boolean> {
  for (let delayMs = 2; ; delayMs = Math.min(delayMs * 2, 100)) {
    try {
      await rmdir(folder);
      return true;
    } catch (error) {
      if (codeOf(error) === "ENOENT") return true;
      if (codeOf(error) !== "EBUSY") throw error;
    }
    if (performance.now() > deadlineMs) return false;
    await sleep(delayMs);
  }
}

export function nodeMemoryBytes(): Promise<number> {
  return meminfo("MemTotal");
}

/** What the machine can give to anybody at once, clean page cache included. */
export function availableMemoryBytes(): Promise<number> {
  return meminfo("MemAvailable");
}

async function meminfo(name: string): Promise<number> {
  const text = await readFile("/proc/meminfo", "utf8");
  const line = text.split("\n").find((candidate) => candidate.startsWith(`${name}:`));
  const kib = Number.parseInt(line?.slice(name.length + 1) ?? "", 10);
  if (Number.isNaN(kib)) throw new SubstrateError("INTERNAL", `/proc/meminfo has no ${name}: is /proc mounted?`);
  return kib * 1024;
}
