/** What the SDK knows of a try that failed. */
interface Failed {
  errorType: "TRANSIENT" | "THROTTLING" | "SERVER_ERROR" | "CLIENT_ERROR";
  error?: unknown;
  retryAfterHint?: Date;
}

/** One request's tries so far, in the SDK's form. */
class Tries {
  readonly #count: number;
  readonly #pauseMs: number;

  constructor(count: number, pauseMs: number) {
    this.#count = count;
    this.#pauseMs = pauseMs;
  }

  getRetryCount(): number {
    return this.#count;
  }

  getRetryDelay(): number {
    return this.#pauseMs;
  }
}

/** Repetitions of one request. */
const maxRetries = 4;
/** So many times as long are pauses if the server asks for fewer requests. */
const throttledFactor = 5;
const maxPauseMs = 20_000;
/** Repetitions that may fail before one succeeds, of all requests of a store together. */
const budget = 40;

/** What passes besides what the SDK holds for it. */
const passes = [
  // of the wires
  "AnswerTimeout",
  "TooSlow",
  "ShortBody",
  "MalformedAnswer",
  // bytes that were changed or lost on their way to the server: sent again they are right
  "BadDigest",
  "InvalidDigest",
  "XAmzContentSHA256Mismatch",
  "XAmzContentChecksumMismatch",
  "IncompleteBody",
  // another write of the same key is under way
  "OperationAborted",
];

/**
 * How the requests of a store are repeated: here and nowhere else in the driver. A few times each, after pauses that
 * grow, with jitter; and out of a budget, so that a store that fails for long gets hardly more than one try of each
 * request, while one that fails now and then is used as ever: a success gives back what its request took, and one more.
 */
export class Retries {
  readonly #pauseMs: number;
  readonly #random: () => number;
  #left = budget;

  /**
   * @param pauseMs before the first repetition; each further one is three times as long.
   * @param random from 0 to 1.
   */
  constructor(pauseMs: number, random: () => number = Math.random) {
    this.#pauseMs = pauseMs;
    this.#random = random;
  }

  acquireInitialRetryToken(): Promise<Tries> {
    return Promise.resolve(new Tries(0, 0));
  }

  /** Throws if the request is not to be repeated. */
  refreshRetryTokenForRetry(token: { getRetryCount(): number }, failed: Failed): Promise<Tries> {
    const done = token.getRetryCount();
    const name = nameOf(failed.error);
    // each of its tries took as long as may be
    const most = name === "TooSlow" ? 1 : maxRetries;
    if (!passing(failed.errorType, name) || done >= most || this.#left < 1) {
      return Promise.reject(new Error("not to be repeated"));
    }
    this.#left -= 1;
    const first = this.#pauseMs * (failed.errorType === "THROTTLING" ? throttledFactor : 1);
    const grown = Math.min(first * 3 ** done, maxPauseMs);
    const asked = failed.retryAfterHint === undefined ? 0 : failed.retryAfterHint.getTime() - Date.now();
    const pause = Math.max(grown * (0.5 + 0.5 * this.#random()), Math.min(asked, maxPauseMs));
    return Promise.resolve(new Tries(done + 1, Math.round(pause)));
  }

  recordSuccess(token: { getRetryCount(): number }): void {
    this.#left = Math.min(budget, this.#left + token.getRetryCount() + 1);
  }
}

function passing(type: Failed["errorType"], name: string): boolean {
  return type === "TRANSIENT" || type === "THROTTLING" || passes.includes(name);
}

function nameOf(error: unknown): string {
  if (!(error instanceof Error)) return "";
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}
