import type { Snapshot } from "@substrate/crds/snapshot.ts";
import { type Command } from "commander";
import { complete, type Source } from "./completion.ts";
import { Connection, type ConnectionFlags } from "./connection.ts";
import { listObjects } from "./objects.ts";

/** kubectl's ShellCompDirectiveNoFileComp. */
const noFiles = ":4";

/** Answers `kubectl-ate __complete WORDS…`: a candidate a line, then a directive. Names that can't be read are left out. */
export async function candidates(root: Command, line: readonly string[]): Promise<string> {
  const typed = line.at(-1) ?? "";
  const { candidates: known, source } = complete(root, line);
  const names = await namesOf(source, flagsOf(line));
  return [...known, ...names.filter((name) => name.startsWith(typed)), noFiles].map((text) => `${text}\n`).join("");
}

function flagsOf(line: readonly string[]): ConnectionFlags {
  const value = (...names: string[]): string | undefined => {
    const at = line.findIndex((word) => names.includes(word));
    const inOne = line.find((word) => names.some((name) => name.startsWith("--") && word.startsWith(`${name}=`)));
    return inOne === undefined ? (at < 0 ? undefined : line[at + 1]) : inOne.slice(inOne.indexOf("=") + 1);
  };
  const [namespace, context, kubeconfig] = [value("-n", "--namespace"), value("--context"), value("--kubeconfig")];
  return {
    ...(namespace === undefined ? {} : { namespace }),
    ...(context === undefined ? {} : { context }),
    ...(kubeconfig === undefined ? {} : { kubeconfig }),
  };
}

async function namesOf(source: Source, flags: ConnectionFlags): Promise<string[]> {
  if (source === "nothing") return [];
  const connection = new Connection(flags);
  const { namespace } = connection;
  const names: string[] = [];
  if (source.startsWith("actors")) {
    names.push(...(await listObjects(connection, "actors", namespace)).map(({ metadata }) => metadata.name));
  }
  if (source !== "actors") {
    const tags = (await listObjects<Snapshot>(connection, "snapshots", namespace)).filter(({ spec }) => spec.tag);
    names.push(...tags.map(({ metadata }) => metadata.name));
  }
  return names;
}
