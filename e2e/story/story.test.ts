import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LocalCluster, startLocalCluster } from "@substrate/local/cluster.ts";
import { StoryContext } from "@substrate/local/story/context.ts";
import { storySteps } from "@substrate/local/story/steps.ts";
import { afterAll, beforeAll, describe, it } from "vitest";
import { tools } from "../support/tools.ts";

/** The same steps as `npm run demo`, in their order: each one needs those before it. */
describe("the story of one actor", { concurrent: false, timeout: 180_000 }, () => {
  const stateDir = mkdtempSync(join(tmpdir(), "sub-story-"));
  let cluster: LocalCluster | undefined;
  let story: StoryContext | undefined;
  let broken: unknown;

  beforeAll(async () => {
    cluster = await startLocalCluster({ stateDir, say: () => undefined, tools, fsync: false });
    story = await StoryContext.create(cluster);
  });
  afterAll(async () => {
    await story?.close();
    await cluster?.stop();
    rmSync(stateDir, { recursive: true, force: true });
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
