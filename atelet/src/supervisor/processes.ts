import { readdirSync, readFileSync } from "node:fs";

export interface ProcessLine {
  pid: number;
  parent: number;
  isZombie: boolean;
  /** Clock ticks since boot. */
  startTicks: number;
}

/** Undefined when the process has ended meanwhile. */
export function readProcess(pid: number): ProcessLine | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch (error) {
    // ENOENT before, ESRCH during the read: it is gone
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ESRCH"))
      return undefined;
    throw error;
  }
  // proc(5): pid (comm) state ppid …; comm may contain anything
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state, parent] = fields;
  return { pid, parent: Number(parent), isZombie: state === "Z" || state === "X", startTicks: Number(fields[19]) };
}

/** Pids of all living processes below one, itself not among them; zombies only wait for being reaped. */
export function descendantsOf(root: number): number[] {
  const all = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name)))
    .filter((line) => line !== undefined);
  const children = Map.groupBy(all, ({ parent }) => parent);
  const found: ProcessLine[] = [...(children.get(root) ?? [])];
  for (const line of found) found.push(...(children.get(line.pid) ?? []));
  return found.filter(({ isZombie }) => !isZombie).map(({ pid }) => pid);
}

/** Pids of this process's children, zombies included, whichever of its threads they are attached to. */
export function ownChildren(): number[] {
  return readdirSync("/proc/self/task").flatMap((thread) =>
    readFileSync(`/proc/self/task/${thread}/children`, "latin1").split(" ").filter(Boolean).map(Number),
  );
}

/** No error if it has ended already. */
export function killNow(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}
