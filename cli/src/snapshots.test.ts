import { type Snapshot } from "@substrate/crds/snapshot.ts";
import { expect, it } from "vitest";
import { CommandFailure } from "./failure.ts";
import { sourceAmong } from "./snapshots.ts";

function snapshot(name: string, spec: Partial<Snapshot["spec"]>, generation: number, day = 1): Snapshot {
  return {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Snapshot",
    metadata: { name, namespace: "ns", creationTimestamp: `2026-01-0${day}T00:00:00Z` },
    spec: { actorRef: { name: "notes" }, ...spec },
    status: { generation, storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED" },
  };
}

const older = snapshot("notes-pre-r1", { tag: "pre-r1" }, 2);
const newer = snapshot("notes-pre-r1-abcdef12-5", { tag: "pre-r1" }, 5, 2);
const all = [
  older,
  newer,
  snapshot("notes-kept", { tag: "kept" }, 3),
  snapshot("notes-4", { generation: 4 }, 4),
  snapshot("other-pre-r1", { actorRef: { name: "other" }, tag: "pre-r1" }, 9, 3),
];
const address = { namespace: "ns", name: "notes" };

it("regression: of two Snapshots with the same tag the oldest was taken silently", () => {
  let failure: unknown;
  try {
    sourceAmong(all, address, "pre-r1");
  } catch (error) {
    failure = error;
  }
  expect(failure).toBeInstanceOf(CommandFailure);
  expect(String(failure)).toContain(
    "2 snapshots of actor notes have the tag pre-r1:\n" +
      "  notes-pre-r1-abcdef12-5: generation 5, 2026-01-02T00:00:00Z, COMPLETED\n" +
      "  notes-pre-r1: generation 2, 2026-01-01T00:00:00Z, COMPLETED",
  );
  expect(failure).toMatchObject({ hint: expect.stringContaining("--from notes-pre-r1-abcdef12-5") as string });
});

it("takes a Snapshot's own name for exactly that one, also where a tag has that name, and a tag that is one's only", () => {
  expect(sourceAmong(all, address, "notes-pre-r1")).toBe("notes-pre-r1");
  const namesake = snapshot("notes-x", { tag: "notes-pre-r1" }, 6);
  expect(sourceAmong([namesake, ...all], address, "notes-pre-r1")).toBe("notes-pre-r1");
  expect(sourceAmong(all, address, "kept")).toBe("notes-kept");
  expect(sourceAmong(all, address, "notes-4")).toBe(4);
});
