/** Instead of up to 10 s: hundreds of crashes follow each other within minutes, and none of them is to be waited out. */
const longestRestartMs = 100;

/** The pause before an atelet's restart is the supervisor's only use of the global timer. */
export function hurrySupervisor(): void {
  const original = globalThis.setTimeout;
  globalThis.setTimeout = Object.assign(
    (callback: (...args: unknown[]) => void, delayMs?: number, ...args: unknown[]) => {
      const restarts = new Error().stack?.includes("atelet-process.ts") === true;
      return original(callback, restarts ? Math.min(delayMs ?? 0, longestRestartMs) : delayMs, ...args);
    },
    original,
  );
}
