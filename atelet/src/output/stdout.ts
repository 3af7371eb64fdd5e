import { closeSync, constants, openSync, writeSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { type Logger } from "@substrate/lib/log.ts";

const FIRST_PAUSE_MS = 2;
const LAST_PAUSE_MS = 200;

/** Takes what actors print. */
export interface OutputSink {
  /** Resolves with true when all of it is taken; with false if the signal aborted before. */
  write(text: string, signal: AbortSignal): Promise<boolean>;
  close(): void;
}

/**
 * This process's standard output, opened anew so that it never blocks: Node's own writes to a pipe wait in the event loop
 * until somebody reads, and a log collector that stands still would stand the whole node still.
 */
export function openStdout(log: Logger, path = "/proc/self/fd/1"): OutputSink {
  let fd: number;
  try {
    fd = openSync(path, constants.O_WRONLY | constants.O_APPEND | constants.O_NONBLOCK);
  } catch (error) {
    throw new Error(`--actor-logs stdout: standard output is no pipe, file or terminal that can be opened (${path})`, {
      cause: error,
    });
  }
  let isBroken = false;
  /** Said once: nothing is lost while it lasts, as what is not taken stays in the actors' files. */
  const failed = (error: unknown): void => {
    if (!isBroken) log.error("standard output takes nothing: actors' output waits in their files", { error });
    isBroken = true;
  };
  return {
    async write(text, signal) {
      const bytes = Buffer.from(text);
      let written = 0;
      let pauseMs = FIRST_PAUSE_MS;
      while (written < bytes.length) {
        const taken = writeSome(fd, bytes, written, failed);
        written += taken;
        if (taken > 0) {
          isBroken = false;
          pauseMs = FIRST_PAUSE_MS;
          continue;
        }
        if (signal.aborted) return false;
        await delay(pauseMs, undefined, { signal, ref: false }).catch(() => undefined);
        pauseMs = Math.min(pauseMs * 2, LAST_PAUSE_MS);
      }
      return true;
    },
    close() {
      closeSync(fd);
    },
  };
}

/** @returns how many bytes were taken; 0 while the reader is behind, or gone. */
function writeSome(fd: number, bytes: Buffer, from: number, failed: (error: unknown) => void): number {
  try {
    return writeSync(fd, bytes, from);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) failed(error);
    return 0;
  }
}
