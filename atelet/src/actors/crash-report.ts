import { type Generations } from "./generations.ts";
import { type ActorRecord } from "./record.ts";

/** What `status.crash` says: why, what the next start goes on from, and what the program wrote last. */
export function crashReport(message: string, record: ActorRecord, generations: Generations, output: string): string {
  const parts = [message, whatIsLeft(record, generations), ...(output === "" ? [] : [`its last output: ${output}`])];
  return parts.join("; ");
}

function whatIsLeft(record: ActorRecord, generations: Generations): string {
  const { stacks } = record.volumes;
  const [usable] = generations.usable();
  if (usable === undefined) {
    return stacks.length === 0
      ? "nothing of it was saved: the next start is from nothing"
      : "no snapshot of it was made: the next start is cold, with its volumes as they are";
  }
  const { generation, fidelity } = usable;
  if (fidelity !== "Memory")
    return `the next resume starts it cold from generation ${generation}, with its volumes as they are`;
  const volumes = stacks.length === 0 ? "" : ", its volumes with it";
  return `the next resume goes on from generation ${generation}${volumes}`;
}
