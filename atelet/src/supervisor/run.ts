import { type Logger } from "@substrate/lib/log.ts";
import { requirePrivileges } from "./privileges.ts";
import { type SupervisedCommand, Supervisor, type SupervisorConfig } from "./supervisor.ts";

/**
 * Makes this process the supervisor of an atelet until SIGTERM or SIGINT; a second signal cuts the grace time short.
 * Exit code 0 when everything below it has ended, else 1.
 */
export function superviseProcess(config: SupervisorConfig, command: SupervisedCommand, log: Logger): void {
  const hurry = new AbortController();
  let supervisor: Supervisor;
  try {
    requirePrivileges();
    command.prepare?.();
    supervisor = new Supervisor(config, command, log);
  } catch (error) {
    log.error("the supervisor cannot start", { error });
    process.exitCode = 1;
    return;
  }
  let isStopping = false;
  function stop(signal: NodeJS.Signals): void {
    if (isStopping) {
      hurry.abort();
      return;
    }
    isStopping = true;
    log.info("stopping", { signal, graceMs: config.graceMs });
    supervisor.stop(hurry.signal).then(
      () => process.exit(0),
      (error: unknown) => {
        log.error("stopping failed", { error });
        process.exit(1);
      },
    );
  }
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  supervisor.start();
}
