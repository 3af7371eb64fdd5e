import { type ReadUsageResponse } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type Actor } from "../actors/actor.ts";
import { type Cgroups } from "../cgroups/cgroups.ts";
import { reportToWire } from "./convert.ts";

/** What an actor takes of its node now; a sleeping one only disk. */
export async function readUsage(actor: Actor, cgroups: Cgroups): Promise<ReadUsageResponse> {
  const { record, generations, sandboxId } = actor;
  const localBytes = generations.all().reduce((sum, { generation, sizeBytes }) => {
    return generations.local(generation) === undefined ? sum : sum + sizeBytes;
  }, 0);
  const running = record.sandbox !== undefined && actor.state !== "CRASHED";
  const [memory, cpuNs] = running
    ? await Promise.all([cgroups.actor(sandboxId), cgroups.cpuNs(sandboxId)])
    : [undefined, 0n];
  return {
    memoryBytes: BigInt(memory?.usageBytes ?? 0),
    memoryLimitBytes: BigInt(memory?.limitBytes ?? record.program.memoryBytes),
    cpuNs,
    sampledUnixMs: BigInt(Date.now()),
    cpuLimitMillis: record.program.cpuMillis,
    localBytes: BigInt(localBytes),
    volumes: reportToWire(actor, 0).volumes,
  };
}
