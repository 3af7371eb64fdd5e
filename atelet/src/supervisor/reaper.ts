import koffi from "koffi";
import { decodeStatus, type Exit } from "./exits.ts";
import { ownChildren, readProcess } from "./processes.ts";

/** linux/prctl.h */
const setChildSubreaper = 36;
/** sys/wait.h */
const noHang = 1;

type Waitpid = (pid: number, status: [number], options: number) => number;

/**
 * Adopts the orphans of this process's descendants (sandboxes outlive the atelet that started them) and reaps them
 * when they end; also right as pid 1. Children that Node itself waits for are left to Node, else it would never learn
 * of their end.
 */
export class Reaper {
  readonly #waitpid: Waitpid;
  readonly #nodesOwn: () => ReadonlySet<number>;
  readonly #reaped: (exit: Exit) => void;
  readonly #onChild = (): void => {
    this.reap();
  };

  /**
   * @param nodesOwn pids started with node:child_process whose exit event has not come yet
   * @param reaped told how each of the others ended
   */
  constructor(nodesOwn: () => ReadonlySet<number>, reaped: (exit: Exit) => void) {
    this.#reaped = reaped;
    this.#nodesOwn = nodesOwn;
    const c = koffi.load("libc.so.6");
    this.#waitpid = c.func("int waitpid(int pid, _Out_ int *status, int options)") as Waitpid;
    const prctl = c.func("int prctl(int option, unsigned long value)") as (option: number, value: number) => number;
    if (prctl(setChildSubreaper, 1) !== 0) throw new Error("prctl(PR_SET_CHILD_SUBREAPER) failed");
    process.on("SIGCHLD", this.#onChild);
  }

  /** Signals coalesce, so this is also called at an interval. */
  reap(): void {
    const nodesOwn = this.#nodesOwn();
    for (const pid of ownChildren()) {
      if (nodesOwn.has(pid)) continue;
      // A zombie still has its start time.
      const startTicks = readProcess(pid)?.startTicks;
      const status: [number] = [0];
      if (this.#waitpid(pid, status, noHang) !== pid || startTicks === undefined) continue;
      this.#reaped({ pid, startTicks, status: decodeStatus(status[0]) });
    }
  }

  close(): void {
    process.off("SIGCHLD", this.#onChild);
  }
}
