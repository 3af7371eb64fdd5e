import { onlyDamaged } from "./damaged.ts";
import { describeNextStart, type NextStartOptions } from "./next-start.ts";

/** What `status.crash` says: why, what the next start goes on from, and what the program wrote last. */
export function crashReport(message: string, options: NextStartOptions, output: string): string {
  const next = onlyDamaged(options)?.message ?? `the next resume starts it ${describeNextStart(options)}`;
  return [message, next, ...(output === "" ? [] : [`its last output: ${output}`])].join("; ");
}
