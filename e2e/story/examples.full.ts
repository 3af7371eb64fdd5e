import { StoryContext } from "@substrate/local/story/context.ts";
import { expect, it } from "vitest";
import { startTestCluster } from "../support/cluster.ts";
import { belongings } from "../support/leftovers.ts";
import { expectOneProcess, longRun, startJournals } from "./journals.ts";

it("an actor with either journal of SQLite is one process over 13 suspends", async () => {
  const { cluster, stop } = await startTestCluster();
  const opened: StoryContext[] = [];
  try {
    const story = await StoryContext.create(cluster);
    opened.push(story);
    const actors = await startJournals(story);
    opened.push(...actors.values());
    await Promise.all([...actors].map(([journal, actor]) => expectOneProcess(actor, journal, longRun)));
  } finally {
    for (const each of opened) await each.close();
    await stop();
  }
  expect(belongings(cluster.stateDir, cluster.id)).toEqual([]);
});
