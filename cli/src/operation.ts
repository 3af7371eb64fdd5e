import { setTimeout as sleep } from "node:timers/promises";
import { formatDurationMs } from "@substrate/lib/resources.ts";
import { getActor, watchActor } from "./actors.ts";
import { type ActorAddress, subresourcePath } from "./address.ts";
import { type Connection } from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import { type Asked, type Finished, Follower, type Started, type Verb } from "./follower.ts";
import { type Progress } from "./progress.ts";
import { passesSoon, refusal } from "./refusal.ts";
import { shortState } from "./states.ts";

/**
 * How long an operator that is being restarted, or does not lead yet, is waited for: its Lease is another's for up to
 * 6 s after a kill.
 */
const acceptPatienceMs = 15_000;
const askAgainMs = 500;

/**
 * Asks for the operation; again, for up to 15 s and never beyond `timeoutMs`, while no operator can accept it.
 * @throws {CommandFailure}
 */
export async function start(
  connection: Connection,
  address: ActorAddress,
  verb: Verb,
  { body, timeoutMs }: { body: object | undefined; timeoutMs: number },
  progress: Progress,
): Promise<Started> {
  const before = await getActor(connection, address);
  const startedAt = performance.now();
  const untilMs = startedAt + Math.min(acceptPatienceMs, timeoutMs);
  for (;;) {
    const answer = await connection.ask(subresourcePath(address, verb), {
      method: "POST",
      headers: { "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (answer.status === 202) {
      const { operationId, startTime } = JSON.parse(answer.body) as { operationId: string; startTime: string };
      return { id: operationId, acceptedUnixMs: Date.parse(startTime), before, startedAt };
    }
    if (!passesSoon(answer.status, answer.body) || performance.now() + askAgainMs > untilMs) {
      const asked = { verb: "create", resource: `actors/${verb}`, group: "subresources.substrate.run" };
      throw await refusal(connection, address, asked, answer.status, answer.body);
    }
    progress.say(`${verb} of ${address.namespace}/${address.name}: waiting for the operator`);
    await sleep(askAgainMs);
  }
}

export interface FinishOptions extends Asked {
  readonly timeoutMs: number;
  /**
   * How long status.lastOperation may show neither the operation nor another one that runs. An operator shows what it
   * has accepted within two seconds, and the next one takes over within 15 s after it died. Default 30 s.
   */
  readonly patienceMs?: number;
}

/** Follows status.lastOperation until that operation has ended. @throws {CommandFailure} when it failed or time is up */
export async function finish(
  connection: Connection,
  address: ActorAddress,
  started: Started,
  options: FinishOptions,
  progress: Progress,
): Promise<Finished> {
  const { verb, timeoutMs, patienceMs = 30_000 } = options;
  const timeout = AbortSignal.timeout(timeoutMs);
  const unseen = new Unseen(patienceMs);
  const key = `${address.namespace}/${address.name}`;
  const follower = new Follower(key, started, options);
  try {
    const signal = AbortSignal.any([timeout, unseen.signal]);
    for await (const actor of watchActor(connection, address, started.before, signal)) {
      progress.say(
        `${verb} of ${key}: ${actor.status?.state === undefined ? "no state yet" : shortState(actor.status.state)}`,
      );
      const step = follower.see(actor);
      if (step === "ended") return follower.finished(actor);
      if (step === "unseen") unseen.begin();
      else unseen.end();
    }
  } catch (error) {
    if (unseen.signal.aborted) throw follower.lost();
    if (timeout.aborted) throw timeUp(verb, key, started, timeoutMs);
    throw error;
  } finally {
    unseen.end();
  }
  throw timeUp(verb, key, started, timeoutMs);
}

/** Aborts when something has not been seen for long. */
class Unseen {
  readonly #abort = new AbortController();
  readonly #patienceMs: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
    this.begin();
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Counts from now on, unless it counts already. */
  begin(): void {
    this.#timer ??= setTimeout(() => {
      this.#abort.abort();
    }, this.#patienceMs);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

function timeUp(verb: Verb, key: string, started: Started, timeoutMs: number): CommandFailure {
  return new CommandFailure(
    "timeout",
    `${verb} of actor ${key} has not ended within ${formatDurationMs(timeoutMs)}; operation ${started.id} goes on`,
    `follow it with "kubectl get actor ${key.split("/")[1] ?? ""} -n ${key.split("/")[0] ?? ""} -w"`,
  );
}
