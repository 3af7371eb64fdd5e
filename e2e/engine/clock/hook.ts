import files from "node:fs";

/**
 * Loaded before the program of every process and thread of a test cluster (`--import`): sets what they take for the time
 * of the day, as somebody who sets the machine's clock does; timers and the monotonic clock go on. The product does not
 * know of it. The control file is in the query of this module's URL and holds milliseconds.
 */
const control = new URL(import.meta.url).searchParams.get("control") ?? "";
const lookEveryMs = 20;
const RealDate = Date;
let offsetMs = 0;
let lookedMs = -Infinity;

function now(): number {
  const nowMs = performance.now();
  if (nowMs - lookedMs >= lookEveryMs) {
    lookedMs = nowMs;
    offsetMs = files.existsSync(control) ? Number(files.readFileSync(control, "utf8")) : 0;
  }
  return RealDate.now() + offsetMs;
}

globalThis.Date = new Proxy(RealDate, {
  construct: (target, args: unknown[], newTarget) =>
    Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget) as object,
  apply: () => new RealDate(now()).toString(),
  get: (target, name, receiver) => (name === "now" ? now : (Reflect.get(target, name, receiver) as unknown)),
});
