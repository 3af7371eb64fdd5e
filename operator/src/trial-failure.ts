import { type ErrorCode, type SubstrateError } from "@substrate/lib/errors.ts";
import { formatBytes } from "@substrate/lib/resources.ts";
import { bookingBytes } from "./placement.ts";
import { type ProgramPart } from "./program.ts";

/** The same on every node: which one tried it is of no interest. */
const sameEverywhere: ReadonlySet<ErrorCode> = new Set([
  "IMAGE_UNAVAILABLE",
  "IMAGE_INVALID",
  "PROGRAM_EXITED",
  "NOT_READY",
  "INVALID",
]);

/** What a failed trial says of the Template: the field that is at fault, once, and why. */
export function trialFailure({ image, memoryBytes }: ProgramPart, { code, message }: SubstrateError): string {
  const why = sameEverywhere.has(code) ? message.replace(/^node \S+: /, "") : message;
  if (code === "NO_ROOM" && message.includes("of memory")) {
    const booking = `${formatBytes(bookingBytes(memoryBytes))} with the runtime's own ${formatBytes(bookingBytes(0))}`;
    return `resources.limits.memory is ${formatBytes(memoryBytes)}, ${booking}: ${why}; lower it, or add a larger node`;
  }
  if (code !== "IMAGE_UNAVAILABLE" && code !== "IMAGE_INVALID") return why;
  const about = `Image ${image}: `;
  return why.toLowerCase().startsWith(about.toLowerCase()) ? about + why.slice(about.length) : about + why;
}
