import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startLocalCluster } from "./cluster.ts";
import { StoryContext } from "./story/context.ts";
import { storySteps } from "./story/steps.ts";

/** `npm run demo`: the whole story by itself, on a cluster of its own; ends with 1 at the first wrong result. */
async function demo(): Promise<void> {
  const stateDir = mkdtempSync(join(tmpdir(), "substrate-demo-"));
  const interrupted = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      interrupted.abort(new Error(`ended by ${signal}`));
    });
  }
  try {
    const cluster = await timed("start a cluster", () =>
      startLocalCluster({ stateDir, say: () => undefined, signal: interrupted.signal, fsync: false }),
    );
    try {
      const story = await timed("build the example's image and the plugin", () => StoryContext.create(cluster));
      for (const step of storySteps()) {
        interrupted.signal.throwIfAborted();
        await timed(step.title, () => step.run(story));
      }
      await story.close();
    } finally {
      await timed("stop the cluster", () => cluster.stop());
    }
  } finally {
    rmSync(stateDir, { recursive: true, force: true });
  }
}

async function timed<T>(title: string, work: () => Promise<T>): Promise<T> {
  const startMs = performance.now();
  try {
    const result = await work();
    console.log(`ok    ${((performance.now() - startMs) / 1000).toFixed(2).padStart(6)} s  ${title}`);
    return result;
  } catch (error) {
    console.log(`WRONG ${((performance.now() - startMs) / 1000).toFixed(2).padStart(6)} s  ${title}`);
    throw error;
  }
}

demo().then(
  () => {
    console.log("The story holds: every step was as it should be.");
  },
  (error: unknown) => {
    console.error(error);
    process.exitCode = 1;
  },
);
