import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildPython } from "@substrate/examples/programs.ts";
import { renderExample } from "@substrate/examples/render.ts";
import { type StoryContext } from "@substrate/local/story/context.ts";
import { expect } from "vitest";
import { parseAllDocuments } from "yaml";

const KEY = 424_242;

/** Suspends in a row, and what is special of some of them. */
export interface Run {
  suspends: number;
  /** After these the snapshot is in the store before the next request. */
  sync: readonly number[];
  /** After this one of them, the node forgets the actor before the next request. */
  fromStore: number;
}

export const longRun: Run = { suspends: 13, sync: [3, 7, 11], fromStore: 7 };
export const shortRun: Run = { suspends: 4, sync: [2], fromStore: 2 };

/** Names in the volume while the program runs. */
const filesWith = {
  wal: ["visits.db", "visits.db-shm", "visits.db-wal", "visits.log", "visits.map"],
  delete: ["visits.db", "visits.log", "visits.map"],
};

export const journals = [
  { journal: "wal", values: 1_000_000 },
  { journal: "delete", values: 10_000 },
] as const;
export type Journal = (typeof journals)[number];

/** examples/python under a name of its own, with times that a test can wait for. */
async function manifest(image: string, { journal, values }: Journal): Promise<object[]> {
  const documents = parseAllDocuments(await renderExample("python", { image }));
  const objects = Array.isArray(documents) ? documents : [];
  for (const document of objects) {
    document.setIn(["metadata", "name"], `python-${journal}`);
    if (document.get("kind") === "Template") {
      document.setIn(["spec", "containers", 0, "args"], [`--journal=${journal}`, `--values=${values}`]);
      document.setIn(["spec", "snapshots"], { uploadDelay: "1s", detachDelay: "1s" });
    } else document.setIn(["spec", "templateRef", "name"], `python-${journal}`);
  }
  return objects.map((document) => document.toJS() as object);
}

/** An actor of examples/python for each journal mode of SQLite, ready. The caller closes them. */
export async function startJournals(story: StoryContext): Promise<Map<Journal, StoryContext>> {
  const folder = join(story.cluster.stateDir, "examples");
  mkdirSync(join(folder, "python"), { recursive: true });
  const { reference } = await buildPython(join(folder, "python"));
  const items = (await Promise.all(journals.map((options) => manifest(reference, options)))).flat();
  const file = join(folder, "python.json");
  writeFileSync(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  await story.kubectl("apply", "-f", file);
  const names = journals.map(({ journal }) => `actor/python-${journal}`);
  await story.kubectl("wait", "--for=condition=Ready", "--timeout=60s", ...names);
  return new Map(journals.map((each) => [each, story.of(`python-${each.journal}`)]));
}

/** Counter, rows, mapped and appended files, dict and process id go on over all suspends of `run`. */
export async function expectOneProcess(
  actor: StoryContext,
  { journal, values }: Journal,
  { suspends, sync, fromStore }: Run,
): Promise<void> {
  const { uid = "" } = (await actor.actor()).metadata;
  // mounted in the node's own mount namespace
  const root = `/proc/${actor.cluster.pid("supervisor") ?? "none"}/root`;
  const volume = join(root, actor.cluster.nodeDir, "actors", uid, "volumes/data/mnt");
  for (let round = 1; round <= suspends + 1; round += 1) {
    expect(JSON.parse(await actor.body("/"))).toEqual({
      memory: round,
      rows: round,
      lines: round,
      mapped: round,
      values,
      pid: 1,
      journal,
      integrity: "ok",
      actor: actor.name,
      generation: String(round - 1),
    });
    expect(await actor.body(`/value?key=${KEY % values}`)).toBe(`value ${KEY % values}\n`);
    // what was counted is on the volume, not in the root file system
    expect(readdirSync(volume).sort()).toEqual(filesWith[journal]);
    if (round > suspends) break;
    await actor.suspend(sync.includes(round) ? "Sync" : "Async");
    if (round === fromStore) {
      await actor.until("the node forgets the actor", 30_000, async () => {
        const { assignment } = (await actor.actor()).status ?? {};
        return assignment?.nodeName === undefined;
      });
    }
  }
}
