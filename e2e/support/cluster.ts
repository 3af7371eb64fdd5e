import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LocalCluster, startLocalCluster } from "@substrate/local/cluster.ts";
import { tools } from "./tools.ts";

export interface TestCluster {
  cluster: LocalCluster;
  /** What the cluster has said so far: restarts of its processes, for instance. */
  lines: string[];
  /** Ends the cluster and removes its state folder. */
  stop: () => Promise<void>;
}

/**
 * A whole cluster in a state folder of its own below the system's folder for temporary files.
 * @param environment variables that its processes get besides this one's.
 */
export async function startTestCluster(environment: NodeJS.ProcessEnv = {}): Promise<TestCluster> {
  const stateDir = mkdtempSync(join(tmpdir(), "sub-"));
  const lines: string[] = [];
  const remove = (): void => {
    rmSync(stateDir, { recursive: true, force: true });
  };
  try {
    const cluster = await startLocalCluster({
      stateDir,
      tools,
      fsync: false,
      environment,
      say: (line) => lines.push(line),
    });
    const stop = async (): Promise<void> => {
      await cluster.stop();
      remove();
    };
    return { cluster, lines, stop };
  } catch (error) {
    remove();
    throw lines.length === 0 ? error : new Error(lines.join("\n"), { cause: error });
  }
}
