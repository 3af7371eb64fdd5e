import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { plain, referencePage, repository, tableRows } from "./tables.ts";

it("docs/reference/requests.md has every bound of the router with its default, and no other", () => {
  const source = readFileSync(join(repository, "router/src/config.ts"), "utf8");
  const inCode = [...source.matchAll(/"(--[a-z-]+) <(n|seconds)>", .*, (?:count|seconds), ([\d_]+)\)/g)].map(
    ([, flag, unit, value = ""]) => {
      const number = Number(value.replaceAll("_", ""));
      return [flag, unit === "n" ? String(number) : `${number / 1_000} s`];
    },
  );
  expect(inCode).toHaveLength(9);
  const documented = tableRows(referencePage("requests.md"), "Bounds and times").map(([flag, value]) => [
    plain(flag),
    value,
  ]);
  expect(documented).toEqual(inCode);
});
