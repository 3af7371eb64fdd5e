import { readFileSync } from "node:fs";
import { readFile, readdir, readlink } from "node:fs/promises";
import { basename } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { type ProcessIdentity } from "../sandbox.ts";

/** asm-generic/fcntl.h; reading alone is 0. */
const accessMode = 0o3;

function isGone(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ESRCH");
}

/** It may wait for a process that holds its memory's lock. */
async function commandLine(pid: number): Promise<string | undefined> {
  try {
    return await readFile(`/proc/${pid}/cmdline`, "utf8");
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** At once: the kernel writes it without waiting for anybody, and it is asked many times a second. */
function statLine(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** The process with this pid now; undefined if there is none or only a zombie is left of it. */
export function identify(pid: number): ProcessIdentity | undefined {
  const stat = statLine(pid);
  if (stat === undefined) return undefined;
  // the command's name, in parentheses, may hold spaces and parentheses itself
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0];
  if (state === "Z" || state === "X") return undefined;
  return { pid, startTicks: Number(fields[19]) };
}

export function isAlive(identity: ProcessIdentity): boolean {
  return identify(identity.pid)?.startTicks === identity.startTicks;
}

/** Whether the process is runsc's for this sandbox: its command line ends with the sandbox's id. */
export async function belongsTo(pid: number, id: string): Promise<boolean> {
  const line = await commandLine(pid);
  return line !== undefined && line.startsWith("runsc-") && line.endsWith(`\0${id}\0`);
}

export interface RunscProcess {
  process: ProcessIdentity;
  /** Sandbox or gofer; else a command that some atelet started. */
  permanent: boolean;
  /** The sandbox's id, the last argument of each of them but an exec's. */
  id: string;
  argv: readonly string[];
}

/** Every process of runsc with this --root. */
export async function findRunsc(root: string): Promise<RunscProcess[]> {
  const found: RunscProcess[] = [];
  for (const entry of await readdir("/proc")) {
    const pid = Number(entry);
    if (!Number.isInteger(pid)) continue;
    const argv = (await commandLine(pid))?.split("\0") ?? [];
    if (!argv.includes(`--root=${root}`)) continue;
    const identity = identify(pid);
    if (identity === undefined) continue;
    found.push({ process: identity, permanent: argv[0]?.startsWith("runsc-") ?? false, id: argv.at(-2) ?? "", argv });
  }
  return found;
}

/** Sandbox and gofer of an id, found without any record: for what is left when runsc's own state is gone. */
export async function findProcesses(id: string): Promise<ProcessIdentity[]> {
  const found: ProcessIdentity[] = [];
  for (const entry of await readdir("/proc")) {
    const pid = Number(entry);
    if (!Number.isInteger(pid) || !(await belongsTo(pid, id))) continue;
    const identity = identify(pid);
    if (identity !== undefined) found.push(identity);
  }
  return found;
}

export function kill(identity: ProcessIdentity): void {
  if (!isAlive(identity)) return;
  try {
    process.kill(identity.pid, "SIGKILL");
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}

/** Waits until all are gone (zombies count as gone). @returns those that are left after `timeoutMs`. */
export async function waitGone(
  processes: readonly ProcessIdentity[],
  timeoutMs: number,
): Promise<readonly ProcessIdentity[]> {
  const deadlineMs = performance.now() + timeoutMs;
  let left = processes;
  for (let delayMs = 1; ; delayMs = Math.min(delayMs * 2, 50)) {
    left = left.filter(isAlive);
    if (left.length === 0 || performance.now() >= deadlineMs) return left;
    await sleep(delayMs);
  }
}

/** Whether the process has a file of one of these names open for writing that was not removed meanwhile. */
export async function writesTo(pid: number, names: readonly string[]): Promise<boolean> {
  const fds = await readdir(`/proc/${pid}/fd`).catch(absent);
  for (const fd of fds ?? []) {
    // the process may close any of its files meanwhile, which says nothing of the others
    const target = await readlink(`/proc/${pid}/fd/${fd}`).catch(absent);
    if (target === undefined || !names.includes(basename(target))) continue;
    const info = await readFile(`/proc/${pid}/fdinfo/${fd}`, "utf8").catch(absent);
    const flags = /^flags:\s*([0-7]+)/m.exec(info ?? "")?.[1] ?? "0";
    if ((Number.parseInt(flags, 8) & accessMode) !== 0) return true;
  }
  return false;
}

function absent(error: unknown): undefined {
  if (!isGone(error)) throw error;
}
