import { get } from "node:http";
import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Program } from "./record.ts";

/** Soon after a restore a program answers within milliseconds; a cold start may take seconds. */
const FIRST_PAUSE_MS = 3;
const LAST_PAUSE_MS = 250;
/** A single probe that takes longer counts as failed. */
const PROBE_MS = 5000;
/** Of a refusing answer, for the message. */
const BODY_CHARACTERS = 200;
const DEAD = "it ended";

export interface ReadinessOptions {
  host: string;
  program: Pick<Program, "readyz" | "ports">;
  deadlineMs: number;
  alive: () => Promise<boolean>;
  /** Whose program it is, for messages. */
  title: string;
  signal: AbortSignal;
}

/**
 * Waits until readyz answers with 200–399; without a readyz, until the first port accepts; without ports, not at all.
 * Throws NOT_READY with the last answer, or PROGRAM_EXITED.
 */
export async function waitUntilReady(options: ReadinessOptions): Promise<void> {
  const endMs = performance.now() + options.deadlineMs;
  let last = "no answer yet";
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 1.5, LAST_PAUSE_MS)) {
    const answered = new AbortController();
    const result = await Promise.race([probe(options), untilDead(options, answered.signal)]);
    answered.abort();
    if (result === undefined) return;
    last = result;
    if (result === DEAD || !(await options.alive())) {
      throw new SubstrateError("PROGRAM_EXITED", `the program of ${options.title} ended before it was ready`);
    }
    if (performance.now() > endMs) {
      throw new SubstrateError(
        "NOT_READY",
        `${options.title} was not ready within ${options.deadlineMs / 1000} s: ${last}`,
        { retryAfterMs: 1000 },
      );
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
  if (program.readyz !== undefined) return probeHttp(host, program.readyz);
  const port = program.ports[0]?.containerPort;
  return port === undefined ? Promise.resolve(undefined) : probeTcp(host, port);
}

function probeHttp(host: string, readyz: { path: string; port: number }): Promise<string | undefined> {
  const what = `readyz GET :${readyz.port}${readyz.path}`;
  return new Promise((resolve) => {
    // agent: false closes the connection after the answer: none of ours may be open at a checkpoint.
    const request = get({ host, port: readyz.port, path: readyz.path, agent: false, timeout: PROBE_MS }, (response) => {
      const { statusCode = 0 } = response;
      if (statusCode >= 200 && statusCode < 400) {
        response.resume();
        resolve(undefined);
        return;
      }
      response.setEncoding("utf8").once("data", (text: string) => {
        resolve(`${what} answered ${statusCode}: ${text.slice(0, BODY_CHARACTERS).trim()}`);
        response.destroy();
      });
      response.once("end", () => {
        resolve(`${what} answered ${statusCode}`);
      });
    });
    request.on("timeout", () => request.destroy(new Error(`no answer within ${PROBE_MS / 1000} s`)));
    request.on("error", (error) => {
      resolve(`${what}: ${explain(error)}`);
    });
  });
}

function probeTcp(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: PROBE_MS }, () => {
      socket.destroy();
      resolve(undefined);
    });
    socket.on("timeout", () => socket.destroy(new Error(`no answer within ${PROBE_MS / 1000} s`)));
    socket.on("error", (error) => {
      resolve(`port ${port}: ${explain(error)}`);
    });
  });
}

function explain(error: Error): string {
  if (!("code" in error) || error.code !== "ECONNREFUSED") return error.message;
  return "connection refused: nothing listens there yet, or only on 127.0.0.1 instead of 0.0.0.0";
}
