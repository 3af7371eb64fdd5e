import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { explainRefusal, probeHttp } from "./probe.ts";
import { type Program } from "./record.ts";

/** Soon after a restore a program answers within milliseconds; a cold start may take seconds. */
const FIRST_PAUSE_MS = 3;
const LAST_PAUSE_MS = 250;
/** After so long it is said what the last answer was: until the deadline nothing else tells. */
const SAY_AFTER_MS = 10_000;
/** A single probe that takes longer counts as failed. */
export const PROBE_MS = 5000;
const DEAD = "it ended";

export interface ReadinessOptions {
  host: string;
  program: Pick<Program, "readyz" | "ports" | "afterRestore">;
  /** Asks the hook first: the program comes from a snapshot. */
  restored: boolean;
  deadlineMs: number;
  alive: () => Promise<boolean>;
  /** Called once when it takes long, with the last answer. */
  slow: (answer: string) => void;
  /** Whose program it is, for messages. */
  title: string;
  signal: AbortSignal;
}

/**
 * Waits until the hook of a restored program, and then its readyz, answer with 200–399; without a readyz, until the
 * first port accepts; without ports, not at all. Throws NOT_READY with the last answer, or PROGRAM_EXITED.
 */
export async function waitUntilReady(options: ReadinessOptions): Promise<void> {
  const endMs = performance.now() + options.deadlineMs;
  const { afterRestore } = options.program;
  if (options.restored && afterRestore !== undefined) {
    // A hook has work to do: it is not asked again while it does it, as a probe would be.
    const hook = (): Promise<string | undefined> =>
      probeHttp(options.host, afterRestore, {
        title: "hooks.afterRestore",
        timeoutMs: Math.max(endMs - performance.now(), FIRST_PAUSE_MS),
      });
    await poll(options, endMs, hook);
  }
  await poll(options, endMs, () => probe(options));
}

async function poll(options: ReadinessOptions, endMs: number, ask: () => Promise<string | undefined>): Promise<void> {
  let sayMs = endMs - options.deadlineMs + SAY_AFTER_MS;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 1.5, LAST_PAUSE_MS)) {
    const answered = new AbortController();
    const result = await Promise.race([ask(), untilDead(options, answered.signal)]);
    answered.abort();
    if (result === undefined) return;
    if (result === DEAD || !(await options.alive())) {
      throw new SubstrateError("PROGRAM_EXITED", `the program of ${options.title} ended before it was ready`);
    }
    if (performance.now() > endMs) {
      throw new SubstrateError(
        "NOT_READY",
        `${options.title} was not ready within ${options.deadlineMs / 1000} s: ${result}`,
        { retryAfterMs: 1000 },
      );
    }
    if (performance.now() > sayMs) {
      options.slow(result);
      sayMs = Infinity;
    }
    options.signal.throwIfAborted();
    await delay(pauseMs, undefined, { signal: options.signal });
  }
}

/** A program that hangs up on nobody, because it is gone, must not cost a whole probe's time. */
async function untilDead({ alive }: ReadinessOptions, answered: AbortSignal): Promise<typeof DEAD> {
  do {
    await delay(LAST_PAUSE_MS, undefined, { signal: answered }).catch(() => undefined);
    // Once there is an answer nobody waits for this any more.
  } while (!answered.aborted && (await alive()));
  return DEAD;
}

/** Why it isn't ready, or undefined. */
function probe({ host, program }: ReadinessOptions): Promise<string | undefined> {
  if (program.readyz !== undefined) return probeHttp(host, program.readyz, { title: "readyz", timeoutMs: PROBE_MS });
  const port = program.ports[0]?.containerPort;
  return port === undefined ? Promise.resolve(undefined) : probeTcp(host, port);
}

function probeTcp(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: PROBE_MS }, () => {
      socket.destroy();
      resolve(undefined);
    });
    socket.on("timeout", () => socket.destroy(new Error(`no answer within ${PROBE_MS / 1000} s`)));
    socket.on("error", (error) => {
      resolve(`port ${port}: ${explainRefusal(error)}`);
    });
  });
}
