import { expect, it } from "vitest";
import { type DaemonSet, podFindings } from "./pods.ts";

const set = (wanted: number, made: number, ready: number): DaemonSet => ({
  metadata: { name: "substrate-atelet" },
  status: { desiredNumberScheduled: wanted, currentNumberScheduled: made, numberReady: ready },
});
const lines = (...given: Parameters<typeof podFindings>): string[] =>
  podFindings(...given).map(({ level, what }) => `${level} ${what}`);

it("says nothing where there is no DaemonSet and nothing forbidden", () => {
  expect(lines("ns", { "pod-security.kubernetes.io/enforce": "privileged" }, [], [])).toEqual([]);
  expect(lines("ns", {}, [{ metadata: { name: "other" } }], [])).toEqual([]);
});

it("tells why pods are not made, or not ready", () => {
  expect(lines("ns", {}, [set(2, 2, 2)], [])).toEqual(["ok DaemonSet substrate-atelet has 2 pods ready"]);
  expect(lines("ns", {}, [set(0, 0, 0)], [])).toEqual(["problem DaemonSet substrate-atelet has no node to run on"]);
  expect(lines("ns", {}, [set(2, 2, 1)], [])).toEqual(["problem DaemonSet substrate-atelet has 1 of 2 pods ready"]);
  const involvedObject = { kind: "DaemonSet", name: "substrate-atelet" };
  const refused = { reason: "FailedCreate", message: 'violates PodSecurity "baseline:latest"', involvedObject };
  expect(lines("ns", { "pod-security.kubernetes.io/enforce": "baseline" }, [set(2, 0, 0)], [refused])).toEqual([
    'problem namespace ns enforces PodSecurity "baseline", which forbids the atelets\' privileged pods',
    'problem DaemonSet substrate-atelet has 0 of 2 pods ready: violates PodSecurity "baseline:latest"',
  ]);
});
