import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { type Installation } from "./installation.ts";

const PAUSE_MS = 100;

/** While `work` goes on, a client of each actor asks again and again, one request at a time. None may fail. */
export async function whileAsked(
  substrate: Installation,
  actors: readonly string[],
  work: () => Promise<void>,
): Promise<void> {
  const stop = new AbortController();
  const clients = actors.map((actor) => ask(substrate, actor, stop.signal));
  try {
    await work();
  } finally {
    stop.abort();
    for (const { answers, failures } of await Promise.all(clients)) {
      expect(failures).toEqual([]);
      expect(answers).toBeGreaterThan(0);
    }
  }
}

async function ask(
  substrate: Installation,
  actor: string,
  stop: AbortSignal,
): Promise<{ answers: number; failures: string[] }> {
  const failures: string[] = [];
  let answers = 0;
  while (!stop.aborted) {
    try {
      const { status, body } = await substrate.get(actor);
      if (status === 200) answers += 1;
      else failures.push(`${actor}: ${status} ${body}`);
    } catch (error) {
      const { message, cause } = error as Error;
      failures.push(`${actor}: ${message}${cause instanceof Error ? `: ${cause.message}` : ""}`);
    }
    await delay(PAUSE_MS);
  }
  return { answers, failures };
}
