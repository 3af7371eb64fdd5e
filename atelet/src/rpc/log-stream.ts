import { open } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { type ServerWritableStream } from "@grpc/grpc-js";
import { type ReadLogRequest, type ReadLogResponse } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { send } from "@substrate/lib/rpc/server.ts";
import { isMissing } from "../node-files.ts";

const CHUNK_BYTES = 64 * 1024;
const POLL_MS = 200;

/**
 * Sends the end of a program's output, and what is written from then on while `follow`.
 * @param options.tailLines how many lines to begin with; negative: all.
 */
export async function followLog(
  path: string,
  options: { tailLines: number; follow: boolean },
  call: ServerWritableStream<ReadLogRequest, ReadLogResponse>,
  signal: AbortSignal,
): Promise<void> {
  let offset = options.tailLines < 0 ? 0 : await tailOffset(path, options.tailLines);
  while (!signal.aborted) {
    const chunk = await read(path, offset);
    if (chunk === "truncated") offset = 0;
    else if (chunk.length > 0) {
      offset += chunk.length;
      await send(call, { data: chunk }, signal);
    } else if (options.follow) await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
    else return;
  }
}

/** From an offset; "truncated" when the file was rotated and is shorter by now. */
async function read(path: string, offset: number): Promise<Buffer | "truncated"> {
  const file = await openIfExists(path);
  if (file === undefined) return Buffer.alloc(0);
  try {
    if ((await file.stat()).size < offset) return "truncated";
    const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(CHUNK_BYTES), position: offset });
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/** Where the last n lines begin. */
async function tailOffset(path: string, lines: number): Promise<number> {
  const file = await openIfExists(path);
  if (file === undefined) return 0;
  try {
    let end = (await file.stat()).size;
    // A final newline ends the last line, it doesn't begin another.
    let missing = lines + 1;
    let last = true;
    while (end > 0) {
      const start = Math.max(0, end - CHUNK_BYTES);
      const { buffer } = await file.read({ buffer: Buffer.alloc(end - start), position: start });
      for (let i = buffer.length - 1; i >= 0; i--) {
        const newline = buffer[i] === 0x0a;
        if (last && !newline) missing -= 1;
        last = false;
        if (newline && --missing === 0) return start + i + 1;
      }
      end = start;
    }
    return 0;
  } finally {
    await file.close();
  }
}

async function openIfExists(path: string): Promise<Awaited<ReturnType<typeof open>> | undefined> {
  try {
    return await open(path, "r");
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}
