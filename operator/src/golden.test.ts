import { type Snapshot, type Template } from "@substrate/crds/index.ts";
import { expect, it } from "vitest";
import { Golden, type GoldenOptions } from "./golden.ts";

function golden(
  name: string,
  changes: { storageState?: string; deletionTimestamp?: string; owner?: string },
): Snapshot {
  const { storageState, deletionTimestamp, owner = "t1" } = changes;
  return {
    metadata: {
      name,
      namespace: "ns",
      uid: `uid-of-${name}`,
      ownerReferences: [{ uid: owner }],
      ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }),
    },
    spec: { templateRef: { name: "app", revision: name } },
    status: { storageState },
  } as Snapshot;
}

const pending = "SNAPSHOT_STORAGE_STATE_PENDING";

it("regression: golden Snapshots of revisions whose trial failed stayed PENDING for ever", async () => {
  const known = [
    golden("failed", { storageState: pending }),
    golden("replaced-before-its-end", {}),
    golden("good", { storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED" }),
    golden("going", { storageState: pending, deletionTimestamp: "2026-01-01T00:00:00Z" }),
    golden("earlier-template", { storageState: pending, owner: "t0" }),
  ];
  const deleted: unknown[] = [];
  const client = {
    delete: (_: unknown, name: string, namespace: string, options: unknown) => {
      deleted.push({ name, namespace, options });
      return Promise.resolve();
    },
  };
  const of = new Golden({ known: { list: () => known }, client } as unknown as GoldenOptions);
  await of.abandon({ metadata: { name: "app", namespace: "ns", uid: "t1" } } as Template);
  expect(deleted).toEqual(
    ["failed", "replaced-before-its-end"].map((name) => ({
      name,
      namespace: "ns",
      options: { uid: `uid-of-${name}` },
    })),
  );
});
