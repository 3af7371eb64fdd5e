import { type ChildProcess } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { childrenOf, identify, type ProcessIdentity } from "../processes/record.ts";
import { type ProcessCommand, SupervisedProcess, type SupervisedOptions } from "../processes/supervised.ts";
import { type PodCgroup } from "./pod-cgroup.ts";
import { type PodNetwork } from "./pod-network.ts";

const START_TIMEOUT_MS = 10_000;
const POLL_MS = 5;

/** The first process inside the namespaces: the only child of unshare. */
export function firstProcess(unshare: ProcessIdentity): ProcessIdentity | undefined {
  const [pid] = childrenOf(unshare.pid);
  return pid === undefined ? undefined : identify(pid);
}

/**
 * Whether the pod's first process would notice SIGTERM now: the supervisor does from the moment at which it starts the
 * atelet. Before, nothing but SIGKILL ends it: the kernel drops a signal that the first process of a pid namespace does
 * not handle (pid_namespaces(7)), Node's own handler, which raises it again, included; and there is nothing yet that it
 * could do at its end.
 */
export function heedsSigterm(first: ProcessIdentity): boolean {
  return childrenOf(first.pid).length > 0;
}

/** The child of the pod's first process whose command line names `script`. */
export function findInPod(first: ProcessIdentity, script: string): ProcessIdentity | undefined {
  const pid = childrenOf(first.pid).find((child) => commandLine(child).includes(script));
  return pid === undefined ? undefined : identify(pid);
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ESRCH")) return "";
    throw error;
  }
}

/** Waits until unshare has made the namespaces and its child runs the waiting shell in them. */
async function waitForShell(unshare: ProcessIdentity, signal: AbortSignal): Promise<number> {
  const end = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const first = firstProcess(unshare);
    if (first !== undefined && isShell(first.pid)) return first.pid;
    if (performance.now() > end) throw new Error("unshare did not start the pod's first process within 10 s");
    await delay(POLL_MS, undefined, { signal });
  }
}

function isShell(pid: number): boolean {
  try {
    return !readlinkSync(`/proc/${pid}/exe`).endsWith("/unshare");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return false;
    throw error;
  }
}

export interface PodOptions extends Omit<SupervisedOptions, "prepare" | "target" | "heeds" | "cleanup"> {
  cgroup: PodCgroup;
  network: PodNetwork;
  memoryLimitBytes: () => number;
}

/**
 * A program in network, mount and pid namespaces and a control group of its own, as a container of a privileged pod
 * would be. When its first process ends, everything in it ends.
 */
export function createPod(options: PodOptions): SupervisedProcess {
  const { cgroup, network, memoryLimitBytes, command } = options;
  return new SupervisedProcess({
    ...options,
    command: (): ProcessCommand => {
      const inner = command();
      const shell = ["/bin/sh", "-c", 'read -r go && exec "$@"', "pod", inner.program, ...inner.arguments];
      return {
        ...inner,
        program: "unshare",
        arguments: ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", ...shell],
      };
    },
    // the shell waits for a line, so that the program begins with its network and inside its group
    prepare: async (child: ChildProcess, signal: AbortSignal): Promise<void> => {
      const unshare = child.pid === undefined ? undefined : identify(child.pid);
      if (unshare === undefined) throw new Error(`the pod ended at once; see ${options.logFile}`);
      const pid = await waitForShell(unshare, signal);
      await network.remove();
      cgroup.create(memoryLimitBytes());
      cgroup.add(pid);
      await network.create(pid, signal);
      child.stdin?.end("go\n");
    },
    // unshare ignores SIGTERM while its child runs
    target: firstProcess,
    heeds: heedsSigterm,
    cleanup: async (): Promise<void> => {
      await network.remove();
      await cgroup.remove();
    },
  });
}
