import { setTimeout as delay } from "node:timers/promises";
import { request } from "undici";

const POLL_MS = 50;
const ANSWER_TIMEOUT_MS = 2_000;

async function problemOf(url: string, signal: AbortSignal | undefined): Promise<string | undefined> {
  try {
    const { statusCode, body } = await request(url, {
      headersTimeout: ANSWER_TIMEOUT_MS,
      bodyTimeout: ANSWER_TIMEOUT_MS,
      signal,
    });
    const text = await body.text();
    return statusCode === 200 ? undefined : `${url} answers ${statusCode}: ${text.trim()}`;
  } catch (error) {
    return `${url}: ${error instanceof Error ? error.message : String(error)}`;
  }
}

export interface WaitOptions {
  deadlineMs: number;
  /** Gives the wait up. */
  signal?: AbortSignal | undefined;
}

/** Polls a /readyz until it answers 200. @throws after the deadline, with the last answer, or when it is given up. */
export async function waitReady(what: string, url: string, logFile: string, options: WaitOptions): Promise<void> {
  const { deadlineMs, signal } = options;
  const end = performance.now() + deadlineMs;
  for (;;) {
    const problem = await problemOf(url, signal);
    if (problem === undefined) return;
    if (performance.now() > end) {
      throw new Error(`${what} is not ready after ${deadlineMs / 1000} s (${problem}); its log is ${logFile}`);
    }
    await delay(POLL_MS, undefined, { signal });
  }
}
