import type { Actor } from "@substrate/crds/actor.ts";
import { expect, test } from "vitest";
import { description } from "./description.ts";

const nowMs = Date.parse("2026-11-30T12:00:00Z");
const at = (seconds: number): string => new Date(nowMs - seconds * 1000).toISOString();

const actor: Actor = {
  apiVersion: "substrate.run/v1alpha1",
  kind: "Actor",
  metadata: { name: "a", namespace: "default", uid: "u", creationTimestamp: at(3600) },
  spec: { templateRef: { name: "t" }, state: "OnDemand" },
  status: {
    state: "ACTOR_STATE_CRASHED",
    revision: "r1",
    assignment: { nodeName: "n", epoch: 2, session: "s" },
    crash: { message: "its program exited with code 3; its last output: one\ntwo", time: at(5) },
    snapshots: [
      {
        name: "a-4",
        generation: 4,
        owner: "SNAPSHOT_OWNER_ACTOR",
        storageState: "SNAPSHOT_STORAGE_STATE_PENDING",
        fidelity: "Memory",
        sizeBytes: 2 ** 20,
        nodeName: "n",
      },
    ],
    conditions: [
      { type: "Ready", status: "False", reason: "CrashLoop", message: "three short lives", lastTransitionTime: at(4) },
    ],
  },
};

test("a crash loop shows why, the last output and the ways out", () => {
  const phases = [
    { name: "claim", ms: 0.2 },
    { name: "restore", ms: 400 },
  ];
  const operations = [
    {
      id: "1",
      type: "Resume",
      result: "Failed",
      reason: "PROGRAM_EXITED",
      message: "it ended",
      startTime: at(6),
      endTime: at(5),
      phases,
    },
  ];
  const text = description({ actor, tags: [], events: "no right", operations, usage: "it is on no node", nowMs });
  expect(text).toMatch(
    /^Name: +a\nNamespace: +default\nState: +CRASHED\nReady: +False, CrashLoop: three short lives$/m,
  );
  expect(text).toContain("  its program exited with code 3 (5s ago)\n  Last output:\n    one\n    two\n");
  expect(text).toContain("kubectl ate resume a -n default --from 4\n    kubectl ate resume a -n default --boot");
  expect(text).toMatch(/^ +4 +PENDING +Memory +1\.0 MiB +n +a-4$/m);
  expect(text).toMatch(/^ +6s ago +Resume +Failed +1s +restore 400ms \(PROGRAM_EXITED: it ended\)$/m);
  expect(text).toContain("Events:\n  unknown: no right\n");
  expect(text).toContain("Tags: none\n");
});

test("regression: a crashed actor was said to sleep", () => {
  const none = {
    nodeName: "n",
    sampledAt: at(0),
    memoryBytes: 0,
    memoryLimitBytes: 2 ** 20,
    cpuNanoseconds: 0,
    cpuLimitMillis: 0,
    localBytes: 0,
    volumes: [],
  };
  const of = (state: NonNullable<Actor["status"]>["state"] & string): string =>
    description({
      actor: { ...actor, status: { ...actor.status, state } },
      tags: [],
      events: [],
      operations: [],
      usage: none,
      nowMs,
    });
  expect(of("ACTOR_STATE_CRASHED")).toMatch(/^ +Memory: +none, it does not run$/m);
  expect(of("ACTOR_STATE_SUSPENDED")).toMatch(/^ +Memory: +none, it sleeps$/m);
});
