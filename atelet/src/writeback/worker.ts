import { parentPort } from "node:worker_threads";
import { heldUnlinkedBytes } from "./held-unlinked.ts";
import { kernelCalls } from "./kernel-calls.ts";
import { type PageCache, pageCache, type PinnedFile } from "./page-cache.ts";

type Operations = PageCache & { heldUnlinkedBytes: typeof heldUnlinkedBytes };

export type CacheRequest = { id: number } & (
  { operation: keyof PageCache; file: PinnedFile } | { operation: "heldUnlinkedBytes"; dir: string }
);

export type CacheResult = ReturnType<Operations[CacheRequest["operation"]]>;
export type CacheReply = { id: number; result: CacheResult } | { id: number; error: string };

const cache = pageCache(kernelCalls());

function answer(request: CacheRequest): CacheResult {
  if (request.operation === "heldUnlinkedBytes") return heldUnlinkedBytes(request.dir);
  const { operation, file } = request;
  try {
    return cache[operation](file);
  } catch (error) {
    throw new Error(`${file.path}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

parentPort?.on("message", (request: CacheRequest) => {
  let reply: CacheReply;
  try {
    reply = { id: request.id, result: answer(request) };
  } catch (error) {
    reply = { id: request.id, error: error instanceof Error ? error.message : String(error) };
  }
  parentPort?.postMessage(reply);
});
