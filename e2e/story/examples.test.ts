import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildPython } from "@substrate/examples/programs.ts";
import { renderExample } from "@substrate/examples/render.ts";
import { StoryContext } from "@substrate/local/story/context.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { belongings } from "../support/leftovers.ts";

const SUSPENDS = 13;
/** After these the snapshot is in the store before the next request. */
const syncSuspends = new Set([3, 7, 11]);
/** Before the request that follows, the node forgets the actor. */
const FROM_STORE = 7;
const KEY = 424_242;

/** Names in the volume while the program runs. */
const filesWith = {
  wal: ["visits.db", "visits.db-shm", "visits.db-wal", "visits.log", "visits.map"],
  delete: ["visits.db", "visits.log", "visits.map"],
};

const copySchema = z.object({
  actor: z.string(),
  hostname: z.string(),
  startedAt: z.string(),
  copy: z.string(),
  random: z.number(),
});

const journals = [
  { journal: "wal", values: 1_000_000 },
  { journal: "delete", values: 10_000 },
] as const;

/** examples/python under a name of its own, with times that a test can wait for. */
async function manifest(image: string, { journal, values }: (typeof journals)[number]): Promise<object[]> {
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

describe("the examples", { timeout: 180_000 }, () => {
  let test: TestCluster | undefined;
  let story: StoryContext | undefined;
  const actors: StoryContext[] = [];

  beforeAll(async () => {
    test = await startTestCluster();
    const { stateDir } = test.cluster;
    const own = await StoryContext.create(test.cluster);
    story = own;
    mkdirSync(join(stateDir, "examples/python"));
    const { reference } = await buildPython(join(stateDir, "examples/python"));
    const items = (await Promise.all(journals.map((options) => manifest(reference, options)))).flat();
    const file = join(stateDir, "examples/python.json");
    writeFileSync(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await own.kubectl("apply", "-f", file);
    const names = journals.map(({ journal }) => `python-${journal}`);
    await own.kubectl("wait", "--for=condition=Ready", "--timeout=60s", ...names.map((name) => `actor/${name}`));
    actors.push(...names.map((name) => own.of(name)));
  });
  afterAll(async () => {
    for (const each of [story, ...actors]) await each?.close();
    if (test === undefined) return;
    const { stateDir, id } = test.cluster;
    await test.stop();
    expect(belongings(stateDir, id)).toEqual([]);
  });

  it("new actors of a Template with a golden snapshot are one process, and share no random number", async () => {
    const own = story;
    if (own === undefined) throw new Error("the cluster did not start");
    const names = ["golden-1", "golden-2"];
    const items = names.map((name) => ({
      apiVersion: "substrate.run/v1alpha1",
      kind: "Actor",
      metadata: { name },
      spec: { templateRef: { name: "counter" } },
    }));
    const file = join(own.cluster.stateDir, "examples/golden.json");
    writeFileSync(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await own.kubectl("apply", "-f", own.manifest);
    await own.kubectl("wait", "--for=condition=Golden", "--timeout=60s", "template/counter");
    await own.kubectl("apply", "-f", file);
    const copies = names.map((name) => own.of(name));
    const answers = await Promise.all(copies.map(async (copy) => copySchema.parse(JSON.parse(await copy.body("/")))));
    for (const copy of copies) await copy.close();
    expect(answers.map(({ actor }) => actor)).toEqual(names);
    expect(answers.map(({ hostname }) => hostname)).toEqual(names);
    // both are the trial run of the Template, gone on
    expect(new Set(answers.map(({ startedAt }) => startedAt)).size).toBe(1);
    expect(new Set(answers.map(({ copy }) => copy)).size).toBe(2);
    expect(new Set(answers.map(({ random }) => random)).size).toBe(2);
  });

  it.concurrent.each(journals)(
    `journal $journal: counter, rows, mapped and appended files, dict and process id go on over ${SUSPENDS} suspends`,
    async ({ journal, values }) => {
      const actor = actors.find(({ name }) => name === `python-${journal}`);
      if (actor === undefined) throw new Error("the actor was not made");
      const { uid = "" } = (await actor.actor()).metadata;
      // mounted in the node's own mount namespace
      const root = `/proc/${actor.cluster.pid("supervisor") ?? "none"}/root`;
      const volume = join(root, actor.cluster.nodeDir, "actors", uid, "volumes/data/mnt");
      for (let round = 1; round <= SUSPENDS + 1; round += 1) {
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
        if (round > SUSPENDS) break;
        await actor.suspend(syncSuspends.has(round) ? "Sync" : "Async");
        if (round === FROM_STORE) {
          await actor.until("the node forgets the actor", 30_000, async () => {
            const { assignment } = (await actor.actor()).status ?? {};
            return assignment?.nodeName === undefined;
          });
        }
      }
    },
  );
});
