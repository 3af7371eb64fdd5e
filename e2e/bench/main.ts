import { fork } from "node:child_process";
import { constants } from "node:os";
import { join } from "node:path";
import { HEAP_OPTIONS } from "@substrate/atelet/supervisor/heap-options.ts";

/**
 * The benchmarks run in a session of their own: Ctrl-C in the terminal reaches this process alone, and not what they have
 * started, which they then remove in order. When this process is killed, they hear of that, too.
 */
const child = fork(join(import.meta.dirname, "run.ts"), process.argv.slice(2), {
  stdio: "inherit",
  detached: true,
  // as the atelet, whose parts run in it
  execArgv: [...process.execArgv, ...HEAP_OPTIONS],
});
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(name, () => {
    if (child.connected) child.send(name);
  });
}
child.once("exit", (code, signal) => {
  process.exitCode = code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
});
