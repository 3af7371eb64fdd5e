import { afterAll, beforeAll, describe } from "vitest";
import { TestCluster, type TestClusterOptions } from "./harness/cluster.ts";
import { whyNoCluster } from "./harness/requirements.ts";

/**
 * `describe` with a cluster that is started before its tests and stopped after them. Skipped, with the reason in its
 * title and on the console, on a machine that cannot run one.
 * @param options `skipped`: why these tests cannot be run, if something else is missing.
 * @param tests gets what gives the cluster: to be called in tests and hooks only.
 */
export function describeOnCluster(
  title: string,
  options: TestClusterOptions & { skipped?: string | undefined },
  tests: (cluster: () => TestCluster) => void,
): void {
  const { skipped, ...clusterOptions } = options;
  const why = whyNoCluster() ?? skipped;
  if (why !== undefined) console.warn(`skipped: ${title}: ${why}`);
  describe.skipIf(why !== undefined)(why === undefined ? title : `${title} (skipped: ${why})`, () => {
    let cluster: TestCluster | undefined;
    const said: string[] = [];
    beforeAll(async () => {
      cluster = await TestCluster.start({ say: (line) => said.push(line), ...clusterOptions });
    });
    afterAll(async () => {
      await cluster?.stop();
      if (said.length > 0) console.log(`the cluster of "${title}" said:\n${said.join("\n")}`);
    });
    tests(() => {
      if (cluster === undefined) throw new Error("the test cluster is not there outside of tests and hooks");
      return cluster;
    });
  });
}
