/** A process as `runsc ps` shows it; ids as the sandbox counts them. */
export interface GuestProcess {
  pid: number;
  /** 0 for the program itself and for what an exec has started. */
  parent: number;
  group: number;
}

/** Reads the table that `runsc ps` prints: UID PID PPID PGID …, a header first. */
export function parseProcesses(table: string): GuestProcess[] {
  return table
    .split("\n")
    .map((line) => line.trim().split(/\s+/).slice(1, 4).map(Number))
    .filter(([pid]) => pid !== undefined && Number.isInteger(pid))
    .map(([pid = 0, parent = 0, group = 0]) => ({ pid, parent, group }));
}

/** A process, its group and all that descends from either; never the sandbox's first process. */
export function tree(processes: readonly GuestProcess[], root: number): number[] {
  const found = new Set([root]);
  for (let before = 0; before !== found.size;) {
    before = found.size;
    for (const { pid, parent, group } of processes) if (found.has(parent) || group === root) found.add(pid);
  }
  const there = new Set(processes.map(({ pid }) => pid));
  return [...found].filter((pid) => pid !== 1 && there.has(pid));
}

/** What execs have started and nobody waits for any more. */
export function execRoots(processes: readonly GuestProcess[]): number[] {
  return processes.filter(({ pid, parent }) => parent === 0 && pid !== 1).map(({ pid }) => pid);
}
