import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { StoryContext } from "@substrate/local/story/context.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { belongings } from "../support/leftovers.ts";
import { expectOneProcess, type Journal, journals, longRun, shortRun, startJournals } from "./journals.ts";

const copySchema = z.object({
  actor: z.string(),
  hostname: z.string(),
  startedAt: z.string(),
  copy: z.string(),
  random: z.number(),
});

describe("the examples", { timeout: 180_000 }, () => {
  let test: TestCluster | undefined;
  let story: StoryContext | undefined;
  let actors = new Map<Journal, StoryContext>();

  beforeAll(async () => {
    test = await startTestCluster();
    story = await StoryContext.create(test.cluster);
    actors = await startJournals(story);
  });
  afterAll(async () => {
    for (const each of [story, ...actors.values()]) await each?.close();
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
    "journal $journal: counter, files, dict and process go on over suspends",
    async (each) => {
      const actor = actors.get(each);
      if (actor === undefined) throw new Error("the actor was not made");
      // the long run of both is in examples.full.ts
      await expectOneProcess(actor, each, each.journal === "wal" ? longRun : shortRun);
    },
  );
});
