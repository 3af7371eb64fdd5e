import { parentPort } from "node:worker_threads";
import { kernelCalls } from "./kernel-calls.ts";
import { type PageCache, pageCache, type PinnedFile } from "./page-cache.ts";

export type CacheOperation = keyof PageCache;

export interface CacheRequest {
  id: number;
  operation: CacheOperation;
  file: PinnedFile;
}

export type CacheResult = ReturnType<PageCache[CacheOperation]>;
export type CacheReply = { id: number; result: CacheResult } | { id: number; error: string };

const cache = pageCache(kernelCalls());

parentPort?.on("message", ({ id, operation, file }: CacheRequest) => {
  let reply: CacheReply;
  try {
    reply = { id, result: cache[operation](file) };
  } catch (error) {
    reply = { id, error: `${file.path}: ${error instanceof Error ? error.message : String(error)}` };
  }
  parentPort?.postMessage(reply);
});
