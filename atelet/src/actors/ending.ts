import { formatBytes } from "@substrate/lib/resources.ts";
import { constants } from "node:os";
import { type NodeContext } from "./node-context.ts";
import { type ExitStatus } from "../supervisor/exits.ts";
import { type Program } from "./record.ts";

/** An ordinary program and the runtime's own processes and threads together have some dozens (24 to 29 seen for a Go program). */
const MANY_PROCESSES = 100;
/** What runsc ends with when it failed itself, not the program in it. */
const RUNTIME_FAILED = 128;

/**
 * Why a sandbox ended, or had to be ended, as the rest of a sentence about its actor: what the kernel and its exit code
 * say of it.
 * @param noticed how it was noticed, if nothing better is known.
 */
export async function ending(node: NodeContext, id: string, program: Program, noticed: string): Promise<string> {
  const { memory, processes, mostProcesses } = await node.cgroups.limitsHit(id);
  if (memory) {
    // Each takes memory: where there are so many they are the reason, not what the program holds.
    const many = mostProcesses < MANY_PROCESSES ? "" : ` while it had ${mostProcesses} processes and threads`;
    return (
      `it used more memory than its limit of ${formatBytes(program.memoryBytes)} and was killed${many} ` +
      `(resources.limits.memory of container ${program.containerName} in its Template; /tmp and other files outside ` +
      `of volumes count)`
    );
  }
  const status = await exitStatus(node, id);
  const how = status === undefined ? noticed : describe(status);
  if (processes === undefined) return how;
  return `${how}, after it had been refused more processes and threads than a sandbox may have (${processes})`;
}

/** Of a sandbox that ended while there was no atelet: undefined if it went down with its supervisor, or the machine. */
export async function endingMeanwhile(node: NodeContext, id: string, program: Program): Promise<string | undefined> {
  const status = await exitStatus(node, id, { longAgo: true });
  return status && ending(node, id, program, "its program ended");
}

async function exitStatus(
  node: NodeContext,
  id: string,
  options?: { longAgo: boolean },
): Promise<ExitStatus | undefined> {
  if (await node.runtime.alive(id)) return undefined;
  const process = await node.runtime.process(id);
  return process && node.exits.of(process, options);
}

function describe(status: ExitStatus): string {
  if ("signal" in status) return `its sandbox was killed by ${signalName(status.signal)}`;
  const { code } = status;
  if (code === RUNTIME_FAILED) return "its sandbox failed (exit code 128 of runsc)";
  // runsc, as shells do, gives the signal that ended the program so.
  if (code > 128 && code <= 128 + 64) return `its program was killed by ${signalName(code - 128)}`;
  return `its program exited with code ${code}`;
}

function signalName(signal: number): string {
  const name = Object.entries(constants.signals).find(([, value]) => value === signal)?.[0];
  return name === undefined ? `signal ${signal}` : `signal ${signal} (${name})`;
}
