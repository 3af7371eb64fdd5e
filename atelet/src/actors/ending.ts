import { formatBytes } from "@substrate/lib/resources.ts";
import { constants } from "node:os";
import { type NodeContext } from "./node-context.ts";
import { type ExitStatus } from "../supervisor/exits.ts";
import { type Program } from "./record.ts";

/** What runsc ends with when it failed itself, not the program in it. */
const RUNTIME_FAILED = 128;

/** What is known of why a sandbox ended by itself, as the rest of a sentence about its actor; undefined: nothing. */
export async function ending(node: NodeContext, id: string, program: Program): Promise<string | undefined> {
  const { memory, processes } = await node.cgroups.limitsHit(id);
  if (memory) {
    return (
      `it used more memory than its limit of ${formatBytes(program.memoryBytes)} and was killed ` +
      `(resources.limits.memory of container ${program.containerName} in its Template)`
    );
  }
  if (await node.runtime.alive(id)) return undefined;
  const process = await node.runtime.process(id);
  const status = process && (await node.exits.of(process));
  const how = status && describe(status);
  if (processes === undefined) return how;
  const last = how === undefined ? "" : ` (${how})`;
  return `it started more processes and threads than a sandbox may have on its node (${processes}), and ended${last}`;
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
