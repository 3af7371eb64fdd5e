import { Command, Option } from "commander";
import { oneOf, type WaitFlags, withConnection, withWait } from "../config.ts";
import { examples } from "../examples.ts";
import { operate } from "../operate.ts";
import { type Terminal } from "../terminal.ts";

/** As Templates write them, and as flags are written. */
const modes = { async: "Async", sync: "Sync" } as const;
const fidelities = { memory: "Memory", rootfs: "Rootfs", data: "Data" } as const;

type SuspendFlags = WaitFlags & { mode?: keyof typeof modes; fidelity?: keyof typeof fidelities; force: boolean };

export function suspendCommand(terminal: Terminal): Command {
  return withWait(withConnection(new Command("suspend").summary("put an actor to sleep")))
    .description(
      "Put an actor to sleep: its memory and files become a snapshot, its memory and CPU are given back.\n" +
        "The next request wakes it. Requests and exec sessions that are open may end first; new ones wait and wake it again.",
    )
    .argument("<actor>", "name of the actor")
    .addOption(
      new Option(
        "--mode <mode>",
        "async: done when the snapshot is on the node's disk; sync: when it is in the store (default: its Template's durability)",
      )
        .choices(Object.keys(modes))
        .argParser(oneOf(Object.keys(modes))),
    )
    .addOption(
      new Option(
        "--fidelity <what>",
        "memory: processes and all files; rootfs: files, the program starts cold; data: volumes only (default: its Template's onSuspend)",
      )
        .choices(Object.keys(fidelities))
        .argParser(oneOf(Object.keys(fidelities))),
    )
    .option("--force", "cut requests and exec sessions that are still open after the drain timeout", false)
    .addHelpText(
      "after",
      examples(
        ["kubectl ate suspend counter", "sleep; the snapshot is uploaded a little later"],
        ["kubectl ate suspend counter --mode sync", "sleep, and return when the snapshot is safe in the store"],
        ["kubectl ate suspend counter --fidelity data", "keep the volumes only: the program starts cold next time"],
        ["kubectl ate suspend counter --force", "don't wait for open requests longer than drainTimeout"],
        ["kubectl ate suspend counter --no-wait -o json", "start it and print the operation's id"],
      ),
    )
    .action(async (name: string, { mode, fidelity, force, ...flags }: SuspendFlags) => {
      const body = {
        ...(mode && { mode: modes[mode] }),
        ...(fidelity && { fidelity: fidelities[fidelity] }),
        force,
      };
      await operate(terminal, "suspend", name, flags, { body, sync: mode === "sync" });
    });
}
