import { parentPort } from "node:worker_threads";
import { type CacheState, kernelPageCache, type PinnedFile } from "./page-cache.ts";

export interface CacheRequest {
  id: number;
  operation: "inspect" | "writeOut";
  file: PinnedFile;
}

export type CacheReply = { id: number; state?: CacheState } | { id: number; error: string };

const cache = kernelPageCache();

parentPort?.on("message", ({ id, operation, file }: CacheRequest) => {
  let reply: CacheReply;
  try {
    if (operation === "inspect") reply = { id, state: cache.inspect(file) };
    else {
      cache.writeOut(file);
      reply = { id };
    }
  } catch (error) {
    reply = { id, error: error instanceof Error ? error.message : String(error) };
  }
  parentPort?.postMessage(reply);
});
