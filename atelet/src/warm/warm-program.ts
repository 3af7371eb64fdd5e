import { createHash } from "node:crypto";
import { type SandboxSpec } from "../sandbox/sandbox.ts";

/** All of a sandbox that is the program's, whoever runs it: what a restore compares, and the limits. */
export type SandboxShape = Pick<
  SandboxSpec,
  "rootfsDir" | "args" | "cwd" | "uid" | "gid" | "memoryLimitBytes" | "cpuMillis"
> & { destinations: readonly string[] };

/** A program for which sandboxes may wait. */
export interface WarmProgram {
  /** Known before its image is: a Template's revision. */
  key: string;
  shape: SandboxShape;
}

/** Equal for shapes that can take each other's images. */
export function shapeDigest(shape: SandboxShape): string {
  const { rootfsDir, args, cwd, uid, gid, memoryLimitBytes, cpuMillis, destinations } = shape;
  const compared = [rootfsDir, args, cwd, uid, gid, memoryLimitBytes, cpuMillis, [...destinations].sort()];
  return createHash("sha256").update(JSON.stringify(compared)).digest("hex");
}
