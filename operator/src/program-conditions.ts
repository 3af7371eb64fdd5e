import { type Condition } from "@substrate/crds/index.ts";
import { formatBytes } from "@substrate/lib/resources.ts";
import { type ActorWorld } from "./actor-world.ts";
import { type ConditionFacts } from "./conditions.ts";
import { type ConditionType, type Reason } from "./reasons.ts";
import { isAwake } from "./ties.ts";

/** What was shown stands where nothing is known now. */
function shown({ actor }: ActorWorld, type: ConditionType): ConditionFacts[] {
  const before = actor.status?.conditions?.find((condition: Condition) => condition.type === type);
  if (before === undefined) return [];
  return [{ type, status: before.status, reason: before.reason as Reason, message: before.message }];
}

/** Whether its program was started with the environment that is wanted now; nothing for one that has none. */
export function envOutdated(world: ActorWorld): ConditionFacts[] {
  const { report, standing } = world;
  if (report === undefined || standing === undefined) return shown(world, "EnvOutdated");
  const { envDigest, envTrouble } = standing;
  const hasRun = report.envDigest !== "" || report.generations.length > 0 || isAwake(report);
  if (!hasRun || (report.envDigest === "" && (envDigest ?? "") === "" && envTrouble === undefined)) return [];
  const facts = (status: Condition["status"], reason: Reason, message: string): ConditionFacts[] => [
    { type: "EnvOutdated", status, reason, message },
  ];
  if (envTrouble !== undefined) return facts("Unknown", envTrouble.reason, envTrouble.message);
  if (envDigest === report.envDigest)
    return facts("False", "EnvCurrent", "Its program was started with its environment");
  const { name } = world.actor.metadata;
  const first = isAwake(report) ? `kubectl ate suspend ${name}, then ` : "";
  const message = `Its environment, or a Secret in it, has changed since its program was started; a cold start applies it: ${first}kubectl ate resume ${name} --boot`;
  return facts("True", "EnvChanged", message);
}

/** Whether a volume holds more than its limit; nothing for an actor without volumes. */
export function volumesFull(world: ActorWorld): ConditionFacts[] {
  const { report } = world;
  if (report === undefined) return shown(world, "VolumesFull");
  if (report.volumes.length === 0) return [];
  const over = report.volumes.filter(({ limitBytes, usedBytes }) => limitBytes > 0n && usedBytes > limitBytes);
  if (over.length === 0) {
    return [
      { type: "VolumesFull", status: "False", reason: "VolumesFit", message: "Its volumes are within their limits" },
    ];
  }
  const held = over.map(
    ({ name, limitBytes, usedBytes }) =>
      `volume ${name} holds ${formatBytes(Number(usedBytes))}, more than its sizeLimit of ${formatBytes(Number(limitBytes))}`,
  );
  const message = `${held.join("; ")}: remove files, or raise sizeLimit in spec.volumes of its Template`;
  return [{ type: "VolumesFull", status: "True", reason: "VolumeOverLimit", message }];
}
