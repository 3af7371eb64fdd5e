/** What retrying cannot mend: the key rests until something enqueues it again. */
export class TerminalError extends Error {
  override readonly name = "TerminalError";
}

export interface ReconcileResult {
  /** Run again after this time at the latest, even if nothing changes. */
  requeueAfterMs?: number;
}

/** Reads the world and converges it; gets only a key. Throws to be run again after a back-off. */
export type Reconcile = (key: string) => Promise<ReconcileResult>;

export type Outcome = "done" | "requeue" | "error" | "terminal";

export interface QueueObserver {
  /** After each run; `error` is set for "error" and "terminal". */
  finished(key: string, outcome: Outcome, durationMs: number, error: unknown): void;
}

export interface QueueOptions {
  /** How many keys are reconciled at once. */
  concurrency: number;
  reconcile: Reconcile;
  observer: QueueObserver;
  /** Delay after a key's first failure; doubles with each further one. Default 250 ms. */
  baseDelayMs?: number;
  /** Default 60 s. */
  maxDelayMs?: number;
  /** 0 ≤ x < 1; tests pass their own. */
  random?: () => number;
}

/**
 * Keys to reconcile: one run per key at a time, at most `concurrency` in all; a key that is added while it runs is run
 * once more afterwards. A failure is retried after an exponential back-off with jitter (half to whole of the delay).
 */
export class ReconcileQueue {
  readonly #options: Required<QueueOptions>;
  readonly #ready = new Set<string>();
  readonly #running = new Set<string>();
  readonly #dirty = new Set<string>();
  readonly #failures = new Map<string, number>();
  readonly #timers = new Map<string, { atMs: number; timer: NodeJS.Timeout }>();
  #started = false;
  #idle: (() => void)[] = [];

  constructor(options: QueueOptions) {
    this.#options = { baseDelayMs: 250, maxDelayMs: 60_000, random: Math.random, ...options };
  }

  /** Keys that wait for a slot. */
  get depth(): number {
    return this.#ready.size;
  }

  get running(): number {
    return this.#running.size;
  }

  add(key: string): void {
    this.#cancelTimer(key);
    if (this.#running.has(key)) this.#dirty.add(key);
    else this.#ready.add(key);
    this.#pump();
  }

  /** Adds the key in `delayMs`, unless it is due earlier already. */
  addAfter(key: string, delayMs: number): void {
    const atMs = performance.now() + delayMs;
    const existing = this.#timers.get(key);
    if (existing !== undefined && existing.atMs <= atMs) return;
    this.#cancelTimer(key);
    const timer = setTimeout(() => {
      this.#timers.delete(key);
      this.add(key);
    }, delayMs);
    this.#timers.set(key, { atMs, timer });
  }

  /** Forgets what is known of a key's failures; for a key whose object is gone. */
  forget(key: string): void {
    this.#failures.delete(key);
  }

  start(): void {
    this.#started = true;
    this.#pump();
  }

  /** Starts nothing more and resolves when what runs has ended; keys that wait are kept for a later start. */
  async stop(): Promise<void> {
    this.#started = false;
    if (this.#running.size === 0) return;
    await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  /** Drops all waiting keys and timers, so that nothing keeps the process alive. */
  clear(): void {
    for (const { timer } of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    this.#ready.clear();
    this.#dirty.clear();
  }

  #cancelTimer(key: string): void {
    const existing = this.#timers.get(key);
    if (existing === undefined) return;
    clearTimeout(existing.timer);
    this.#timers.delete(key);
  }

  #pump(): void {
    while (this.#started && this.#running.size < this.#options.concurrency) {
      const [key] = this.#ready;
      if (key === undefined) return;
      this.#ready.delete(key);
      this.#running.add(key);
      void this.#run(key);
    }
  }

  async #run(key: string): Promise<void> {
    const startedMs = performance.now();
    let outcome: Outcome;
    let failure: unknown;
    try {
      const result = await this.#options.reconcile(key);
      this.#failures.delete(key);
      outcome = result.requeueAfterMs === undefined ? "done" : "requeue";
      if (result.requeueAfterMs !== undefined) this.addAfter(key, result.requeueAfterMs);
    } catch (error) {
      failure = error;
      if (error instanceof TerminalError) {
        this.#failures.delete(key);
        outcome = "terminal";
      } else {
        outcome = "error";
        this.addAfter(key, this.#backOff(key));
      }
    }
    this.#options.observer.finished(key, outcome, performance.now() - startedMs, failure);
    this.#running.delete(key);
    if (this.#dirty.delete(key)) this.add(key);
    if (this.#running.size === 0 && !this.#started) {
      for (const resolve of this.#idle.splice(0)) resolve();
    }
    this.#pump();
  }

  #backOff(key: string): number {
    const failures = this.#failures.get(key) ?? 0;
    this.#failures.set(key, failures + 1);
    const { baseDelayMs, maxDelayMs, random } = this.#options;
    const delayMs = Math.min(maxDelayMs, baseDelayMs * 2 ** Math.min(failures, 30));
    return delayMs * (0.5 + random() / 2);
  }
}
