import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";

const recordSchema = z.object({ pid: z.number().int().positive(), startTime: z.string() });
/** A process that cannot be mistaken for a later one with the same pid. */
export type ProcessIdentity = z.infer<typeof recordSchema>;

const POLL_MS = 20;

/** `startTime` is field 22 of /proc/PID/stat (proc(5)): clock ticks from boot. Undefined if it is gone. */
function look(pid: number): { startTime: string; ended: boolean } | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ESRCH"))
      return undefined;
    throw error;
  }
  // the command, field 2, is in parentheses and may hold anything
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const startTime = fields[19];
  return startTime === undefined ? undefined : { startTime, ended: fields[0] === "Z" || fields[0] === "X" };
}

/** Undefined if it is gone; one that has ended and was not waited for yet has its identity still. */
export function identify(pid: number): ProcessIdentity | undefined {
  const startTime = look(pid)?.startTime;
  return startTime === undefined ? undefined : { pid, startTime };
}

export function isAlive(identity: ProcessIdentity): boolean {
  const seen = look(identity.pid);
  return seen?.startTime === identity.startTime && !seen.ended;
}

/** Sends the signal if that very process lives. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): void {
  if (!isAlive(identity)) return;
  try {
    process.kill(identity.pid, signal);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

/** True when it is gone within the time. @throws when the wait is given up. */
export async function waitForEnd(
  identity: ProcessIdentity,
  deadlineMs: number,
  signal?: AbortSignal,
): Promise<boolean> {
  const end = performance.now() + deadlineMs;
  while (isAlive(identity)) {
    if (performance.now() > end) return false;
    await delay(POLL_MS, undefined, { signal });
  }
  return true;
}

/** Direct children, by the kernel's list (CONFIG_PROC_CHILDREN). Empty when the process is gone. */
export function childrenOf(pid: number): number[] {
  const path = `/proc/${pid}/task/${pid}/children`;
  try {
    return readFileSync(path, "utf8").split(" ").filter(Boolean).map(Number);
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ESRCH")) return [];
    throw error;
  }
}

export function writeRecord(path: string, identity: ProcessIdentity): void {
  writeFileSync(path, `${JSON.stringify(identity)}\n`);
}

export function readRecord(path: string): ProcessIdentity | undefined {
  if (!existsSync(path)) return undefined;
  const text = readFileSync(path, "utf8");
  // a machine that lost power may leave an empty file: nothing of it runs any more
  return text.trim() === "" ? undefined : recordSchema.parse(JSON.parse(text));
}

export function removeRecord(path: string): void {
  rmSync(path, { force: true });
}
