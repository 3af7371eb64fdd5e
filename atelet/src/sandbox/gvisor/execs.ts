import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type ExecOptions, type SandboxExec } from "../sandbox.ts";
import { execSandbox, startExec } from "./exec.ts";
import { execRoots, type GuestProcess, parseProcesses, tree } from "./guest-processes.ts";
import { findRunsc, kill, waitGone } from "./process.ts";

export interface ExecsOptions {
  runscPath: string;
  flags: readonly string[];
  /** runsc's own state. */
  root: string;
  /** For what one exec needs while it runs. */
  dir: string;
  run: (id: string, subcommand: readonly string[], timeoutMs: number) => Promise<string>;
  alive: (id: string) => Promise<boolean>;
  log: Logger;
}

/** For a program to begin, and for what is asked of runsc about it. */
const timeoutMs = 10_000;

/** Programs beside an actor's own, started by `runsc exec`. */
export class Execs {
  readonly #options: ExecsOptions;

  constructor(options: ExecsOptions) {
    this.#options = options;
  }

  async start(id: string, options: ExecOptions): Promise<SandboxExec> {
    const { runscPath, flags, dir, alive } = this.#options;
    const started = await startExec({ runscPath, flags, dir, id, options, startWithinMs: timeoutMs });
    return {
      ended: started.ended.then(async (code) => {
        if (await alive(id)) return code;
        throw new SubstrateError("PROGRAM_EXITED", `sandbox ${id} ended, and "${options.command[0] ?? ""}" with it`);
      }),
      kill: async () => {
        if (await alive(id)) await this.#kill(id, tree(await this.#processes(id), started.pid));
      },
    };
  }

  /** Nobody is at the other end of the execs of an earlier atelet: they are ended, inside and out. */
  async endLeft(): Promise<void> {
    const { root, log } = this.#options;
    const left = (await findRunsc(root)).flatMap(({ process, argv }) => {
      const id = execSandbox(argv);
      return id === undefined ? [] : [{ process, id }];
    });
    const clients = left.map(({ process }) => process);
    clients.forEach(kill);
    await waitGone(clients, timeoutMs);
    for (const id of new Set(left.map((exec) => exec.id))) {
      try {
        const processes = await this.#processes(id);
        const pids = execRoots(processes).flatMap((pid) => tree(processes, pid));
        await this.#kill(id, pids);
      } catch (error) {
        log.warn("what an exec has started could not be ended", { sandbox: id, error });
      }
    }
  }

  async #processes(id: string): Promise<GuestProcess[]> {
    return parseProcesses(await this.#options.run(id, ["ps", id], timeoutMs));
  }

  /**
   * One after the other, parents first: a shell that lives on would go on with its next command. One that has ended
   * meanwhile is no error.
   */
  async #kill(id: string, pids: readonly number[]): Promise<void> {
    let failure: unknown;
    for (const pid of pids) {
      try {
        await this.#options.run(id, ["kill", `--pid=${pid}`, id, "KILL"], timeoutMs);
      } catch (error) {
        failure = error;
      }
    }
    if (failure === undefined) return;
    const left = new Set((await this.#processes(id)).map(({ pid }) => pid));
    const survivors = pids.filter((pid) => left.has(pid));
    if (survivors.length === 0) return;
    throw new SubstrateError("INTERNAL", `sandbox ${id}: its processes ${survivors.join(", ")} could not be killed`, {
      cause: failure,
    });
  }
}
