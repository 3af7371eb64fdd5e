import { setTimeout as delay } from "node:timers/promises";
import { type Logger } from "@substrate/lib/log.ts";
import { cutLines, type LineLabels } from "./lines.ts";
import { rotate } from "./rotation.ts";
import { type OutputSink } from "./stdout.ts";
import { Tail } from "./tail.ts";

/** How often outputs are looked at: a rotation waits as long, and so does a line on its way to the collector. */
const LOOK_EVERY_MS = 500;
/** A line without an end is passed on when nothing has followed for so long: a prompt, or a program that died in it. */
const QUIET_MS = 2_000;
/** How long an actor that leaves, or the end of the atelet, waits for a collector that does not read. */
const LAST_WORDS_MS = 1_000;

/** One program whose output is kept in a file. */
export interface OutputSource {
  labels: () => LineLabels;
  /** output.log of the actor, and where it is kept how much of it was passed on. */
  log: string;
  logPlaces: string;
  /** Whether its program may be writing. */
  mayWrite: () => boolean;
  /** Another one whenever it may have written since: what sleeps is not looked at again and again. */
  lifeMark: () => string;
}

export interface OutputsOptions {
  /** Undefined: outputs are kept and rotated, and passed on to nobody. */
  sink: OutputSink | undefined;
  passed: (bytes: number) => void;
  dropped: (bytes: number) => void;
  log: Logger;
}

interface Followed {
  source: OutputSource;
  tail: Promise<Tail> | undefined;
  /** Of the life at whose end nothing was left to rotate, and to read. */
  rotatedMark: string | undefined;
  drainedMark: string | undefined;
  /** Since when an unended line has stood at the end; its length. */
  unended: { bytes: number; sinceMs: number } | undefined;
}

/**
 * Keeps all actors' outputs within bounds and, with a sink, passes them on line by line. One writer takes turns among
 * the actors; a collector that does not read holds up nothing but this: what is not read stays in the files until they
 * are rotated away.
 */
export class Outputs {
  readonly #options: OutputsOptions;
  readonly #followed = new Map<string, Followed>();
  #passing = Promise.resolve();

  constructor(options: OutputsOptions) {
    this.#options = options;
  }

  add(uid: string, source: OutputSource): void {
    this.#followed.set(uid, {
      source,
      tail: undefined,
      rotatedMark: undefined,
      drainedMark: undefined,
      unended: undefined,
    });
  }

  /** Its files are about to be removed: the last words go out first. */
  async remove(uid: string): Promise<void> {
    const followed = this.#followed.get(uid);
    if (followed === undefined) return;
    const late = AbortSignal.timeout(LAST_WORDS_MS);
    const turn = this.#inTurn(() => (late.aborted ? Promise.resolve() : this.#lastWords(uid, followed, late)));
    // Another actor's turn may wait for a collector that stands still.
    await Promise.race([turn, delay(LAST_WORDS_MS, undefined, { ref: false })]);
    this.#followed.delete(uid);
  }

  /** Until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#every(signal, () => this.#rotateAll()), this.#every(signal, () => this.#passAll(signal))]);
  }

  /** The last words of all, and how far each came. */
  async close(): Promise<void> {
    const late = AbortSignal.timeout(LAST_WORDS_MS);
    await this.#inTurn(async () => {
      for (const [uid, followed] of this.#followed) await this.#lastWords(uid, followed, late);
    });
    this.#options.sink?.close();
  }

  async #every(signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    const stopped = (): boolean => signal.aborted;
    while (!stopped()) {
      await work();
      await delay(LOOK_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  async #rotateAll(): Promise<void> {
    for (const [uid, followed] of [...this.#followed]) {
      const { source } = followed;
      const mark = restMark(source);
      if (mark !== undefined && mark === followed.rotatedMark) continue;
      await this.#guard(uid, "rotating its output", async () => {
        const tail = await this.#tail(followed);
        const cut = await (tail === undefined ? rotate(source.log) : tail.rotate());
        followed.rotatedMark = mark;
        if (cut?.problem === undefined) return;
        const { log } = this.#options;
        log.error("an output was cut without keeping its older piece", { ...source.labels(), error: cut.problem });
      });
    }
  }

  /** Turn by turn, as long as anybody has more. */
  #passAll(signal: AbortSignal): Promise<void> {
    if (this.#options.sink === undefined) return Promise.resolve();
    return this.#inTurn(async () => {
      const stopped = (): boolean => signal.aborted;
      for (let more = true; more && !stopped();) {
        more = false;
        for (const [uid, followed] of [...this.#followed]) {
          if (stopped()) return;
          await this.#guard(uid, "passing its output on", async () => {
            if (await this.#pass(followed, signal, false)) more = true;
          });
        }
      }
      for (const [uid, { tail }] of [...this.#followed]) {
        await this.#guard(uid, "keeping the place in its output", async () => (await tail)?.save());
      }
    });
  }

  async #lastWords(uid: string, followed: Followed, late: AbortSignal): Promise<void> {
    await this.#guard(uid, "passing the last of its output on", async () => {
      followed.drainedMark = undefined;
      while (await this.#pass(followed, late, true));
      await (await followed.tail)?.save();
    });
  }

  /** One piece. @returns whether there is more. */
  async #pass(followed: Followed, signal: AbortSignal, isLast: boolean): Promise<boolean> {
    const { sink, passed } = this.#options;
    const { source } = followed;
    const mark = restMark(source);
    if (mark !== undefined && mark === followed.drainedMark) return false;
    const tail = await this.#tail(followed);
    if (sink === undefined || tail === undefined) return false;
    const { chunk, at, rest, isEnd } = await tail.read();
    await this.#tellDropped(followed, tail, signal);
    const flush = isLast || isEnd || mark !== undefined || this.#isQuiet(followed, chunk);
    const { json, consumedBytes } = cutLines(chunk, source.labels(), new Date().toISOString(), { flush });
    if (consumedBytes > 0) {
      if (!(await sink.write(json, signal))) return false;
      tail.advance(at + consumedBytes);
      passed(consumedBytes);
    }
    followed.unended = unendedOf(followed.unended, chunk.length - consumedBytes);
    if (!rest) followed.drainedMark = mark;
    return rest && (consumedBytes > 0 || chunk.length === 0);
  }

  /** Undefined without a sink: then nobody wants to know how far it came. */
  #tail(followed: Followed): Promise<Tail | undefined> {
    if (this.#options.sink === undefined) return Promise.resolve(undefined);
    followed.tail ??= Tail.open(followed.source.log, followed.source.logPlaces).catch((error: unknown) => {
      followed.tail = undefined;
      throw error;
    });
    return followed.tail;
  }

  /** Whether nothing has followed the unended line for a while. */
  #isQuiet({ unended }: Followed, chunk: Buffer): boolean {
    return unended?.bytes === chunk.length && performance.now() - unended.sinceMs > QUIET_MS;
  }

  async #tellDropped({ source }: Followed, tail: Tail, signal: AbortSignal): Promise<void> {
    const bytes = tail.takeDropped();
    if (bytes === 0) return;
    this.#options.dropped(bytes);
    const labels = source.labels();
    this.#options.log.warn("output of an actor was dropped: the reader of standard output is too slow", {
      ...labels,
      bytes,
    });
    const note = `[substrate: ${bytes} bytes of output were dropped here, as the log collector did not keep up]\n`;
    const { json } = cutLines(Buffer.from(note), labels, new Date().toISOString(), { flush: true });
    await this.#options.sink?.write(json, signal);
  }

  /** One writer at a time: lines must not be mixed. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    this.#passing = this.#passing.then(work);
    return this.#passing;
  }

  async #guard(uid: string, what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#options.log.error(`${what} failed`, { uid, error });
    }
  }
}

/** Of a program that does not write now. */
function restMark(source: OutputSource): string | undefined {
  return source.mayWrite() ? undefined : source.lifeMark();
}

function unendedOf(before: Followed["unended"], bytes: number): Followed["unended"] {
  if (bytes === 0) return undefined;
  return before?.bytes === bytes ? before : { bytes, sinceMs: performance.now() };
}
