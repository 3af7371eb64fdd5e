import { formatBytes } from "@substrate/lib/resources.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { runTool } from "./commands.ts";

export interface VolumeUsage {
  name: string;
  usedBytes: number;
  /** 0: no limit. */
  limitBytes: number;
}

export interface VolumeLimit {
  name: string;
  sizeLimitBytes: number;
}

export interface UsageWatchOptions {
  /** Where the volumes are mounted. */
  mounted: () => { name: string; path: string }[];
  /** As they are now: a policy, which changes while the program runs. */
  limits: () => readonly VolumeLimit[];
  everyMs?: number;
  /** After the first measurement, and each that found a volume above its limit where none was, or none any more. */
  crossed: () => void;
  /** A volume was above its limit at two measurements in a row. */
  exceeded: (message: string) => void;
  log: Logger;
}

/** As often as a node looks at its emptyDirs. */
const EVERY_MS = 10_000;
/** Until the first measurement: what was known of an earlier life may be wrong by now, and the start itself needs the disk. */
const FIRST_MS = 1000;
/** A folder with millions of files. */
const MEASURE_WITHIN_MS = 60_000;
/** A volume that was below this share of its limit a moment ago is not measured again before a suspend. */
const NEAR_LIMIT = 0.5;

/** What a running actor's volumes hold: blocks of files as du counts them, hard links once. */
export class UsageWatch {
  readonly #options: UsageWatchOptions;
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #measuring: Promise<void> = Promise.resolve();
  #held: readonly { name: string; usedBytes: number }[] | undefined;

  constructor(options: UsageWatchOptions) {
    this.#options = options;
    if (options.limits().length > 0) this.#schedule(Math.min(FIRST_MS, options.everyMs ?? EVERY_MS));
  }

  /** As last measured, beside the limits of now. */
  get usage(): readonly VolumeUsage[] {
    return withLimits(this.#held ?? [], this.#options.limits());
  }

  /** Ends; resolves when nothing reads the volumes any more. */
  async stop(): Promise<void> {
    this.#stop.abort();
    clearTimeout(this.#timer);
    await this.#measuring;
  }

  /** What is wrong with volumes that are near their limit, measured now; undefined: nothing. */
  async exceedsNow(): Promise<string | undefined> {
    const near = this.#options.limits().some(({ name, sizeLimitBytes }) => {
      const known = this.#held?.find((held) => held.name === name);
      return sizeLimitBytes > 0 && (known === undefined || known.usedBytes > sizeLimitBytes * NEAR_LIMIT);
    });
    if (!near) return undefined;
    await this.#measure();
    return overLimit(this.usage);
  }

  #schedule(inMs: number): void {
    this.#timer = setTimeout(() => {
      const before = overLimit(this.usage);
      void this.#measure().then(() => {
        if (this.#stop.signal.aborted) return;
        const now = overLimit(this.usage);
        if (before !== undefined && now !== undefined) this.#options.exceeded(now);
        this.#schedule(this.#options.everyMs ?? EVERY_MS);
      });
    }, inMs);
    this.#timer.unref();
  }

  /** Joins one under way. Never rejects: what cannot be measured now is measured the next time. */
  #measure(): Promise<void> {
    this.#measuring = this.#measuring.then(async () => {
      if (this.#stop.signal.aborted) return;
      const isFirst = this.#held === undefined;
      const wasOver = overLimit(this.usage);
      try {
        this.#held = await measure(this.#options, this.#stop.signal);
      } catch (error) {
        this.#options.log.debug("the volumes could not be measured", { error });
        return;
      }
      if (isFirst || (overLimit(this.usage) === undefined) !== (wasOver === undefined)) this.#options.crossed();
    });
    return this.#measuring;
  }
}

async function measure(
  { mounted }: UsageWatchOptions,
  signal: AbortSignal,
): Promise<{ name: string; usedBytes: number }[]> {
  const volumes = mounted();
  if (volumes.length === 0) return [];
  // Files that vanish meanwhile make du end with 1, after it has counted the others.
  const text = await runTool(
    "du",
    ["--summarize", "--block-size=1", "--one-file-system", "--", ...volumes.map(({ path }) => path)],
    { timeoutMs: MEASURE_WITHIN_MS, signal, alsoFine: 1 },
  );
  const sizes = new Map(
    text.split("\n").map((line) => {
      const [bytes = "", path = ""] = line.split("\t");
      return [path, Number.parseInt(bytes, 10)];
    }),
  );
  return volumes.map(({ name, path }) => ({ name, usedBytes: sizes.get(path) ?? 0 }));
}

/** What was measured, beside limits that may have changed since. */
export function withLimits(
  held: readonly { name: string; usedBytes: number }[],
  limits: readonly VolumeLimit[],
): VolumeUsage[] {
  return held.map(({ name, usedBytes }) => ({
    name,
    usedBytes,
    limitBytes: limits.find((limit) => limit.name === name)?.sizeLimitBytes ?? 0,
  }));
}

function overLimit(usage: readonly VolumeUsage[]): string | undefined {
  const over = usage.find(({ usedBytes, limitBytes }) => limitBytes > 0 && usedBytes > limitBytes);
  if (over === undefined) return undefined;
  return (
    `volume ${over.name} holds ${formatBytes(over.usedBytes)}, more than its sizeLimit of ` +
    `${formatBytes(over.limitBytes)} (spec.volumes of its Template)`
  );
}
