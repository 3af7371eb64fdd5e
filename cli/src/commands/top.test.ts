import { expect, test } from "vitest";
import { type Usage } from "../inspection.ts";
import { coresBetween, nodeTable, usageTable } from "./top.ts";

const usage: Usage = {
  nodeName: "n",
  sampledAt: "2026-11-30T12:00:00.000Z",
  memoryBytes: 20 * 2 ** 20,
  memoryLimitBytes: 96 * 2 ** 20,
  cpuNanoseconds: 5e8,
  cpuLimitMillis: 1000,
  localBytes: 2 ** 20,
  volumes: [{ name: "data", usedBytes: 1024, limitBytes: 2 ** 20 }],
};

test("CPU is what was used between two looks, and nothing when the sandbox began anew", () => {
  const later = { ...usage, sampledAt: "2026-11-30T12:00:02.000Z" };
  expect(coresBetween(usage, { ...later, cpuNanoseconds: 15e8 })).toBe(0.5);
  expect(coresBetween(usage, { ...later, cpuNanoseconds: 1e8 })).toBe(0);
  expect(coresBetween(usage, usage)).toBe(0);
});

test("a sleeping actor has no memory, one without a node nothing at all", () => {
  const rows = [
    { namespace: "d", name: "a", state: "RUNNING", usage, cores: 0.5 },
    { namespace: "d", name: "b", state: "SUSPENDED", usage: { ...usage, memoryBytes: 0, volumes: [] } },
    { namespace: "d", name: "c", state: "SUSPENDED" },
  ];
  expect(usageTable(rows, false)).toMatch(
    /^a +RUNNING +20\.0MiB\/96\.0MiB +500m\/1000m +1\.0MiB +data:1\.0KiB\/1\.0MiB$/m,
  );
  expect(usageTable(rows, true)).toMatch(/^d +b +SUSPENDED +- +- +1\.0MiB +-$/m);
  expect(usageTable(rows, false)).toMatch(/^c +SUSPENDED +- +- +- +-$/m);
});

test("a node that is not reached has no figures", () => {
  const node = { metadata: { name: "n" }, address: "x", runtime: "", unschedulable: true, actors: 0, running: 0 };
  expect(nodeTable([{ ...node, reachable: false }])).toMatch(/^n +no \(cordoned\)( +-){10}$/m);
  const gone = { ...node, reachable: false, lost: true, trouble: "is not Ready" };
  expect(nodeTable([gone])).toMatch(/^n +no \(lost, cordoned, not Ready\) /m);
});
