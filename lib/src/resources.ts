/** Kubernetes quantities and durations as numbers, and numbers as text for people. */

const binary = { Ki: 2n ** 10n, Mi: 2n ** 20n, Gi: 2n ** 30n, Ti: 2n ** 40n, Pi: 2n ** 50n, Ei: 2n ** 60n };
/** Decimal suffixes as powers of ten. */
const decimal = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };

const quantityPattern = /^\+?(\d*)(?:\.(\d*))?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d{1,2})?$/;

/**
 * A quantity that is not negative (`256Mi`, `1`, `500m`, `1.5Gi`, `1e3`) times 10^scale, rounded up as Kubernetes does. Exact: floats
 * would turn 0.057 into 58m.
 */
function parseQuantity(quantity: string | number, scale: number, what: string): number {
  const text = String(quantity);
  const [, whole = "", fraction = "", suffix = ""] = quantityPattern.exec(text) ?? [];
  if (whole + fraction === "") throw new Error(`"${text}" is not a ${what}`);
  let value = BigInt(whole + fraction);
  let exponent = scale - fraction.length;
  if (suffix in binary) value *= binary[suffix as keyof typeof binary];
  else if (suffix in decimal) exponent += decimal[suffix as keyof typeof decimal];
  else exponent += Number(suffix.slice(1));
  const result = exponent >= 0 ? value * 10n ** BigInt(exponent) : divideUp(value, 10n ** BigInt(-exponent));
  if (result > BigInt(Number.MAX_SAFE_INTEGER)) throw new Error(`"${text}" is too large for a ${what}`);
  return Number(result);
}

function divideUp(value: bigint, by: bigint): bigint {
  return (value + by - 1n) / by;
}

/** Bytes of a memory quantity such as `256Mi`; throws with an example when it is none. */
export function parseMemoryBytes(quantity: string | number): number {
  return parseQuantity(quantity, 0, 'memory quantity; write for instance "256Mi" or "1Gi"');
}

/** Thousandths of a core of a CPU quantity such as `500m` or `1.5`. */
export function parseCpuMillis(quantity: string | number): number {
  return parseQuantity(quantity, 3, 'CPU quantity; write for instance "500m" or "2"');
}

const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** Milliseconds of a duration such as `10s`, `5m`, `1h30m` or `500ms`. */
export function parseDurationMs(text: string): number {
  if (!/^(?:\d+(?:ms|s|m|h))+$/.test(text))
    throw new Error(`"${text}" is not a duration; write for instance "10s", "5m", "1h30m" or "500ms"`);
  let total = 0;
  for (const [, count, unit] of text.matchAll(/(\d+)(ms|s|m|h)/g))
    total += Number(count) * unitMs[unit as keyof typeof unitMs];
  if (!Number.isSafeInteger(total)) throw new Error(`"${text}" is too long a duration`);
  return total;
}

/** `0 B`, `13.9 MiB`, `1.0 GiB`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = bytes;
  let unit = 0;
  // 1023.95 and above would print as 1024.0
  while (value >= 1_023.95 && unit < units.length - 1) {
    value /= 1_024;
    unit += 1;
  }
  return `${unit === 0 ? String(value) : value.toFixed(1)} ${units[unit] ?? ""}`;
}

/** `0ms`, `850ms`, `1.5s`, `10s`, `5m`, `1h30m`: the two largest units are enough for people. */
export function formatDurationMs(durationMs: number): string {
  if (durationMs < 1_000) return `${String(Math.round(durationMs))}ms`;
  if (durationMs < 59_950) return `${String(Math.round(durationMs / 100) / 10)}s`;
  const seconds = Math.round(durationMs / 1_000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3_600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${String(count)}${unit}`)
    .join("");
}
