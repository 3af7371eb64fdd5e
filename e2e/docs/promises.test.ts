import { storageState } from "@substrate/crds/snapshot.ts";
import { expect, it } from "vitest";
import { pageText } from "./pages.ts";
import { plain, tableRows } from "./tables.ts";

it("R23: docs promise durability of what is COMPLETED alone, and of what is PENDING no more than a crash's survival", () => {
  const rows = tableRows(pageText("docs/concepts.md"), "Where a snapshot is");
  const meaning = new Map(rows.map(([state, text = ""]) => [plain(state), text]));
  expect([...meaning.keys()]).toEqual(storageState.options);
  const promised = storageState.options.filter((state) => meaning.get(state)?.includes("durable") === true);
  expect(promised).toEqual(["SNAPSHOT_STORAGE_STATE_COMPLETED"]);
  expect(meaning.get("SNAPSHOT_STORAGE_STATE_PENDING")).toMatch(
    /\bSurvives a crash of any of our processes, not the loss of the node or a power cut\b/,
  );
});

it("R23: where a mode of suspend or an fsync of a program is described, so is what it does not promise", () => {
  const modes = tableRows(pageText("docs/reference/cli.md")).find(([flag]) => flag === "`--mode`");
  expect(modes?.at(-1)).toMatch(/`async` .* on the node's disk, `sync` .* in the store/);
  expect(pageText("docs/tasks/volumes.md")).toMatch(/`fsync` protects .*, not from a power cut .*COMPLETED/s);
});
