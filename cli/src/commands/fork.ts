import { setTimeout as sleep } from "node:timers/promises";
import type { Actor } from "@substrate/crds/actor.ts";
import type { Snapshot } from "@substrate/crds/snapshot.ts";
import { formatDurationMs } from "@substrate/lib/resources.ts";
import { Command } from "commander";
import { type ActorAddress } from "../address.ts";
import { type WaitFlags, withConnection, withWait } from "../config.ts";
import { Connection } from "../connection.ts";
import { examples } from "../examples.ts";
import { CommandFailure } from "../failure.ts";
import { createObject, findObject, listObjects } from "../objects.ts";
import { Progress } from "../progress.ts";
import { nearest } from "../refusal.ts";
import { createTag, tagObjectName, untilStored } from "../snapshots.ts";
import { shortState } from "../states.ts";
import { type Terminal } from "../terminal.ts";

const pollMs = 250;

export function forkCommand(terminal: Terminal): Command {
  return withWait(withConnection(new Command("fork").summary("make another actor of a snapshot")))
    .description(
      "Make an actor that begins with the state of a tag. Named an actor instead, its present state is tagged first; that\n" +
        "Snapshot stays until it is deleted.",
    )
    .argument("<snapshot>", "name of a tag's Snapshot, or of an actor")
    .argument("<name>", "name of the new actor")
    .addHelpText(
      "after",
      examples(
        ["kubectl ate fork counter-before-import copy", "actor copy begins as counter was at that tag"],
        ["kubectl ate fork counter copy", "actor copy begins as counter is now"],
      ),
    )
    .action(async (from: string, name: string, flags: WaitFlags) => {
      const connection = new Connection(flags);
      const { namespace } = connection;
      const started = performance.now();
      const progress = new Progress(terminal.stderr, `fork of ${from} as ${namespace}/${name}`);
      try {
        const found = await findObject<Snapshot>(connection, "snapshots", namespace, from);
        const snapshot = found ?? (await tagged(terminal, connection, from, name, flags, progress));
        const templateName = checked(snapshot);
        const actor = await createObject<Actor>(connection, "actors", "Actor", {
          metadata: { name, namespace },
          spec: { templateRef: { name: templateName }, source: { snapshotRef: { name: snapshot.metadata.name } } },
        });
        const made = flags.wait
          ? await untilReady(connection, { namespace, name }, flags.timeout, started, progress)
          : actor;
        progress.end();
        if (flags.output === "json") {
          const shown = { ...made, metadata: { ...made.metadata, managedFields: undefined } };
          terminal.stdout.write(`${JSON.stringify(shown, null, 2)}\n`);
          return;
        }
        const took = flags.wait ? ` (${formatDurationMs(Math.round(performance.now() - started))})` : "";
        const how = flags.wait ? "is ready: its first request starts it" : "is made";
        terminal.stdout.write(`actor ${namespace}/${name} ${how}, from snapshot ${snapshot.metadata.name}${took}\n`);
      } finally {
        progress.end();
      }
    });
}

/** The present state of an actor, under a tag named after the copy. */
async function tagged(
  terminal: Terminal,
  connection: Connection,
  from: string,
  copy: string,
  flags: WaitFlags,
  progress: Progress,
): Promise<Snapshot> {
  const { namespace } = connection;
  const actor = await findObject<Actor>(connection, "actors", namespace, from);
  if (actor === undefined) throw await nothingToFork(connection, from);
  await mustBeNew(connection, copy);
  const tag = await freeTag(connection, from, `fork-${copy}`.slice(0, 40).replace(/[-.]+$/, ""));
  const snapshot = await createTag(connection, { namespace, name: from }, tag);
  progress.end();
  terminal.stderr.write(`actor ${from} is tagged first: snapshot ${tagObjectName(from, tag)}\n`);
  return untilStored(connection, snapshot, flags.timeout, progress);
}

/** Before a tag is made for it that nobody would use. */
async function mustBeNew(connection: Connection, name: string): Promise<void> {
  const { namespace } = connection;
  if ((await findObject<Actor>(connection, "actors", namespace, name)) === undefined) return;
  throw new CommandFailure("operationFailed", `actor ${namespace}/${name} exists already`, "choose another name");
}

/** `wanted`, or with a number behind it where an earlier fork's tag is still there. */
async function freeTag(connection: Connection, from: string, wanted: string): Promise<string> {
  const snapshots = await listObjects<Snapshot>(connection, "snapshots", connection.namespace);
  const taken = new Set(snapshots.map(({ metadata }) => metadata.name));
  for (let number = 1; ; number += 1) {
    const tag = number === 1 ? wanted : `${wanted}.${number}`;
    if (!taken.has(tagObjectName(from, tag))) return tag;
  }
}

async function nothingToFork(connection: Connection, name: string): Promise<CommandFailure> {
  const { namespace } = connection;
  const snapshots = await listObjects<Snapshot>(connection, "snapshots", namespace);
  const names = snapshots.filter(({ spec }) => spec.tag !== undefined).map(({ metadata }) => metadata.name);
  const near = nearest(name, names);
  return new CommandFailure(
    "notFound",
    `there is neither a snapshot nor an actor ${name} in namespace ${namespace}`,
    near.length > 0
      ? `did you mean ${near.join(" or ")}?`
      : names.length > 0
        ? `its tags are ${names.slice(0, 10).join(", ")}`
        : 'it has no tags: make one with "kubectl ate tag ACTOR TAG"',
  );
}

/** The Template of what can be forked. */
function checked({ metadata: { name, namespace = "" }, spec, status }: Snapshot): string {
  if (spec.tag === undefined) {
    const actor = spec.actorRef?.name ?? "ACTOR";
    throw new CommandFailure(
      "operationFailed",
      `snapshot ${namespace}/${name} is not a tag: it goes when newer ones are stored`,
      `tag the actor with "kubectl ate tag ${actor} TAG" and fork that`,
    );
  }
  if (status?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED" && status.templateName !== undefined) {
    return status.templateName;
  }
  throw new CommandFailure(
    "operationFailed",
    `snapshot ${namespace}/${name} can't be forked: it is ${shortState(status?.storageState)}`,
    `wait until it is COMPLETED: "kubectl get snapshot ${name} -n ${namespace} -w"`,
  );
}

async function untilReady(
  connection: Connection,
  { namespace, name }: ActorAddress,
  timeoutMs: number,
  started: number,
  progress: Progress,
): Promise<Actor> {
  for (;;) {
    const actor = await findObject<Actor>(connection, "actors", namespace, name);
    if (actor === undefined) throw new CommandFailure("notFound", `actor ${namespace}/${name} was deleted meanwhile`);
    const ready = actor.status?.conditions?.find(({ type }) => type === "Ready");
    if (ready?.status === "True") return actor;
    if (performance.now() - started > timeoutMs) {
      throw new CommandFailure(
        "timeout",
        `actor ${namespace}/${name} is not Ready within ${formatDurationMs(timeoutMs)}: ${ready?.message ?? "it has no state yet"}`,
        `see "kubectl ate describe ${name} -n ${namespace}"`,
      );
    }
    progress.say(`actor ${namespace}/${name}: ${ready?.message ?? "not looked at yet"}`);
    await sleep(pollMs);
  }
}
