import { parentPort } from "node:worker_threads";
import { bytesBelow, type LocalBytes, localBytes, snapshotBytes } from "./local-bytes.ts";

export type DiskRequest = { id: number } & (
  { operation: "local"; dir: string } | { operation: "snapshots"; dir: string } | { operation: "below"; dir: string }
);
export type DiskReply = { id: number; result: LocalBytes | number } | { id: number; error: string };

const knownImages = new Map<string, number>();

function answer({ operation, dir }: DiskRequest): LocalBytes | number {
  if (operation === "local") return localBytes(dir, knownImages);
  return operation === "snapshots" ? snapshotBytes(dir) : bytesBelow(dir);
}

parentPort?.on("message", (request: DiskRequest) => {
  let reply: DiskReply;
  try {
    reply = { id: request.id, result: answer(request) };
  } catch (error) {
    reply = { id: request.id, error: error instanceof Error ? error.message : String(error) };
  }
  parentPort?.postMessage(reply);
});
