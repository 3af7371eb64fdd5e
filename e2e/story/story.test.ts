import { StoryContext } from "@substrate/local/story/context.ts";
import { storySteps } from "@substrate/local/story/steps.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { belongings } from "../support/leftovers.ts";

/** The same steps as `npm run demo`, in their order: each one needs those before it. */
describe("the story of one actor", { concurrent: false, timeout: 180_000 }, () => {
  let test: TestCluster | undefined;
  let story: StoryContext | undefined;
  let broken: unknown;

  beforeAll(async () => {
    test = await startTestCluster();
    story = await StoryContext.create(test.cluster);
  });
  afterAll(async () => {
    await story?.close();
    if (test === undefined) return;
    const { stateDir, id } = test.cluster;
    await test.stop();
    expect(belongings(stateDir, id)).toEqual([]);
  });

  for (const { title, run } of storySteps()) {
    it(title, async ({ skip }) => {
      if (broken !== undefined) skip("an earlier step of the story went wrong");
      if (story === undefined) throw new Error("the cluster did not start");
      try {
        await run(story);
      } catch (error) {
        broken = error;
        throw error;
      }
    });
  }
});
