import { readFileSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { StoryContext } from "@substrate/local/story/context.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";

const CLIENTS = 8;
const PAUSE_MS = 20;

interface Hammered {
  answers: number;
  failures: string[];
  counts: number[];
}

/** Clients that ask one after the other until `over`. */
async function hammer(story: StoryContext, over: AbortSignal): Promise<Hammered> {
  const result: Hammered = { answers: 0, failures: [], counts: [] };
  const stopped = (): boolean => over.aborted;
  const client = async (): Promise<void> => {
    while (!stopped()) {
      const { status, body } = await story.get("/");
      result.answers += 1;
      if (status === 200) result.counts.push((JSON.parse(body) as { memory: number }).memory);
      else result.failures.push(`${status} ${body}`);
      await delay(PAUSE_MS);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  return result;
}

/** What a rollout of the DaemonSet is to the requests of one node's actors. */
describe("the atelet's pod is replaced while clients ask", { concurrent: false, timeout: 120_000 }, () => {
  let test: TestCluster;
  let story: StoryContext;

  beforeAll(async () => {
    test = await startTestCluster();
    story = await StoryContext.create(test.cluster);
    // A busy machine may take longer than half a minute for a pod: that is no matter of this test.
    const manifest = readFileSync(story.manifest, "utf8").replace(/^spec:$/m, "spec:\n  wakeTimeout: 55s");
    writeFileSync(story.manifest, manifest);
    await story.kubectl("apply", "-f", story.manifest);
    await story.until("the counter answers", 60_000, () => story.count());
  });
  afterAll(async () => {
    await story.close();
    await test.stop();
  });

  it("SIGTERM and a new pod on the same folder: every request is held and then served, and nothing is lost", async () => {
    const over = new AbortController();
    const hammered = hammer(story, over.signal);
    await delay(10 * PAUSE_MS);
    await test.cluster.hold("supervisor");
    expect((await story.storageStates())[0]).toMatch(/COMPLETED$/);
    await test.cluster.start("supervisor");
    const before = (await story.count()).memory;
    await story.until("it counts on", 30_000, async () => (await story.count()).memory > before + CLIENTS);
    over.abort();
    const { answers, failures, counts } = await hammered;
    expect(failures).toEqual([]);
    expect(new Set(counts).size).toBe(answers);
  });

  it("SIGKILL: what comes while there is no pod is held until the next one serves", async () => {
    await test.cluster.hold("supervisor", "SIGKILL");
    const asked = Promise.all(Array.from({ length: CLIENTS }, () => story.get("/")));
    await test.cluster.start("supervisor");
    const answers = await asked;
    expect(answers.map(({ status, body }) => (status === 200 ? 200 : body))).toEqual(Array(CLIENTS).fill(200));
  });
});
