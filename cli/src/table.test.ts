import type { Actor } from "@substrate/crds/actor.ts";
import { expect, test } from "vitest";
import { actorTable } from "./table.ts";

const created = "2026-01-01T00:00:00Z";
const nowMs = Date.parse(created) + 3 * 3_600_000;

const asleep: Actor = {
  apiVersion: "substrate.run/v1alpha1",
  kind: "Actor",
  metadata: { name: "counter", namespace: "default", creationTimestamp: created },
  spec: { templateRef: { name: "counter-template" }, state: "OnDemand" },
  status: {
    state: "ACTOR_STATE_SUSPENDED",
    assignment: { nodeName: "node-1", epoch: 4, session: "s" },
    generation: 2,
    snapshots: [
      {
        name: "counter-2",
        generation: 2,
        owner: "SNAPSHOT_OWNER_ACTOR",
        storageState: "SNAPSHOT_STORAGE_STATE_PENDING",
        fidelity: "Memory",
        sizeBytes: 50 * 2 ** 20,
      },
      {
        name: "counter-1",
        generation: 1,
        owner: "SNAPSHOT_OWNER_ACTOR",
        storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED",
        fidelity: "Memory",
      },
    ],
    lastOperation: { id: "op", type: "Suspend", result: "Failed", reason: "REQUESTS_OPEN", startTime: created },
    conditions: [
      { type: "Ready", status: "True", reason: "Asleep", message: "It sleeps", lastTransitionTime: created },
    ],
  },
};

const fresh: Actor = {
  apiVersion: "substrate.run/v1alpha1",
  kind: "Actor",
  metadata: { name: "a", namespace: "team-a", creationTimestamp: created },
  spec: { templateRef: { name: "t" }, state: "Suspended" },
};

test("one line an actor with its newest snapshot", () => {
  expect(actorTable([asleep, fresh], { wide: false, namespaces: false, nowMs })).toBe(
    [
      "NAME      STATE       NODE     TEMPLATE           SNAPSHOT    STORAGE   READY     AGE",
      "counter   SUSPENDED   node-1   counter-template   counter-2   PENDING   True      3h",
      "a         - (held)    -        t                  -           -         Unknown   3h",
      "",
    ].join("\n"),
  );
});

test("wide adds size, epoch, every snapshot, the last operation and why it is not Ready; all namespaces their names", () => {
  const lines = actorTable([asleep, fresh], { wide: true, namespaces: true, nowMs }).split("\n");
  expect(lines[0]).toMatch(/^NAMESPACE +NAME .* SIZE +EPOCH +SNAPSHOTS +LAST OPERATION +MESSAGE$/);
  expect(lines[1]).toMatch(
    /^default +counter .* 50\.0MiB +4 +2:PENDING,1:COMPLETED +Suspend Failed \(REQUESTS_OPEN\) +It sleeps$/,
  );
  expect(lines[2]).toMatch(/^team-a +a .* - +- +- +- +-$/);
});
