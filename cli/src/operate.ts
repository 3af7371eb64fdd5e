import type { Actor } from "@substrate/crds/actor.ts";
import { formatDurationMs } from "@substrate/lib/resources.ts";
import { type WaitFlags } from "./config.ts";
import { Connection } from "./connection.ts";
import { finish, start } from "./operation.ts";
import { Progress } from "./progress.ts";
import { shortState } from "./states.ts";
import { type Terminal } from "./terminal.ts";

/** Starts an operation of an actor, waits for its end unless the flags say otherwise, and prints what came of it. */
export async function operate(
  terminal: Terminal,
  verb: "suspend" | "resume",
  name: string,
  flags: WaitFlags,
  { body, sync }: { body: object | undefined; sync: boolean },
): Promise<void> {
  const { stdout, stderr } = terminal;
  const connection = new Connection(flags);
  const address = { namespace: connection.namespace, name };
  const progress = new Progress(stderr, `${verb} of ${address.namespace}/${name}`);
  try {
    const started = await start(connection, address, verb, { body, timeoutMs: flags.timeout }, progress);
    if (!flags.wait) {
      progress.end();
      const result = { operationId: started.id, type: verb === "suspend" ? "Suspend" : "Resume", result: "Running" };
      if (flags.output === "json") stdout.write(`${JSON.stringify(result, null, 2)}\n`);
      else stdout.write(`${verb} of actor ${address.namespace}/${name} has begun: operation ${started.id}\n`);
      return;
    }
    const finished = await finish(connection, address, started, { verb, sync, timeoutMs: flags.timeout }, progress);
    progress.end();
    if (flags.output === "json") {
      const { actor, ...facts } = finished;
      const { state, snapshots } = actor.status ?? {};
      const shown = { ...facts, actor: { ...address, state, snapshot: snapshots?.[0] } };
      stdout.write(`${JSON.stringify(shown, null, 2)}\n`);
      return;
    }
    const took = formatDurationMs(finished.durationMs);
    stdout.write(`actor ${address.namespace}/${name} ${outcome(verb, started.before, finished.actor)} (${took})\n`);
  } finally {
    progress.end();
  }
}

/** What a finished operation came to; a suspend of an actor that slept has changed nothing. */
function outcome(verb: "suspend" | "resume", before: Actor, { metadata, status }: Actor): string {
  if (verb === "resume") return "resumed";
  const newest = status?.snapshots?.[0];
  const fidelity = newest?.fidelity === "Memory" ? "" : `, ${newest?.fidelity ?? ""} only`;
  const snapshot = newest === undefined ? "" : `: ${newest.name}, ${shortState(newest.storageState)}${fidelity}`;
  if ((status?.generation ?? 0) > (before.status?.generation ?? 0)) return `suspended${snapshot}`;
  const ready = status?.conditions?.find(({ type }) => type === "Ready");
  const look = `kubectl ate describe ${metadata.name} -n ${metadata.namespace ?? ""}`;
  const trouble = ready?.status === "False" ? `; it is not Ready (${ready.reason}), see "${look}"` : "";
  return `sleeps already${snapshot === "" ? ": it was never saved" : snapshot}${trouble}`;
}
