import { setTimeout as delay } from "node:timers/promises";
import { request } from "undici";

const POLL_MS = 50;
const ANSWER_TIMEOUT_MS = 2_000;

async function problemOf(url: string): Promise<string | undefined> {
  try {
    const { statusCode, body } = await request(url, {
      headersTimeout: ANSWER_TIMEOUT_MS,
      bodyTimeout: ANSWER_TIMEOUT_MS,
    });
    const text = await body.text();
    return statusCode === 200 ? undefined : `${url} answers ${statusCode}: ${text.trim()}`;
  } catch (error) {
    return `${url}: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** Polls a /readyz until it answers 200. @throws after `deadlineMs`, with the last answer. */
export async function waitReady(what: string, url: string, deadlineMs: number, logFile: string): Promise<void> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    const problem = await problemOf(url);
    if (problem === undefined) return;
    if (performance.now() > end) {
      throw new Error(`${what} is not ready after ${deadlineMs / 1000} s (${problem}); its log is ${logFile}`);
    }
    await delay(POLL_MS);
  }
}
