import { parentPort } from "node:worker_threads";
import { Kernel } from "./kernel.ts";
import { type LaneRequest, type LaneResponse } from "./lane.ts";
import { loadLinux } from "./linux.ts";
import { loadNftables } from "./nftables.ts";

/** A thread of its own for blocking kernel calls: it may change its network namespace, and nobody waits for its locks. */
if (parentPort === null) throw new Error("lane-worker.ts is started by lane.ts as a worker thread");
type Call = (...args: unknown[]) => unknown;
const port = parentPort;
const kernel = new Kernel(loadLinux(), loadNftables());

function answer({ id, method, args }: LaneRequest): LaneResponse {
  try {
    return { id, value: (kernel as unknown as Record<string, Call>)[method]?.(...args) };
  } catch (error) {
    return { id, error: error instanceof Error ? error.message : String(error) };
  }
}

port.on("message", (request: LaneRequest) => {
  port.postMessage(answer(request));
});
