import koffi from "koffi";
import { ownChildren } from "./processes.ts";

/** linux/prctl.h */
const setChildSubreaper = 36;
/** sys/wait.h */
const noHang = 1;

type Waitpid = (pid: number, status: null, options: number) => number;

/**
 * Adopts the orphans of this process's descendants (sandboxes outlive the atelet that started them) and reaps them
 * when they end; also right as pid 1. Children that Node itself waits for are left to Node, else it would never learn
 * of their end.
 */
export class Reaper {
  readonly #waitpid: Waitpid;
  readonly #nodesOwn: () => ReadonlySet<number>;
  readonly #onChild = (): void => {
    this.reap();
  };

  /** @param nodesOwn pids started with node:child_process whose exit event has not come yet */
  constructor(nodesOwn: () => ReadonlySet<number>) {
    this.#nodesOwn = nodesOwn;
    const c = koffi.load("libc.so.6");
    this.#waitpid = c.func("int waitpid(int pid, void *status, int options)") as Waitpid;
    const prctl = c.func("int prctl(int option, unsigned long value)") as (option: number, value: number) => number;
    if (prctl(setChildSubreaper, 1) !== 0) throw new Error("prctl(PR_SET_CHILD_SUBREAPER) failed");
    process.on("SIGCHLD", this.#onChild);
  }

  /** Signals coalesce, so this is also called at an interval. */
  reap(): void {
    const nodesOwn = this.#nodesOwn();
    for (const pid of ownChildren()) if (!nodesOwn.has(pid)) this.#waitpid(pid, null, noHang);
  }

  close(): void {
    process.off("SIGCHLD", this.#onChild);
  }
}
