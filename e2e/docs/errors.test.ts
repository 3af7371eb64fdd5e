import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { status as grpcStatus } from "@grpc/grpc-js";
import { errorCatalogue } from "@substrate/lib/errors.ts";
import { expect, it } from "vitest";
import { plain, referencePage, repository, tableRows } from "./tables.ts";

it("docs/reference/errors.md has every code of lib/src/errors.ts with its HTTP and gRPC status, and no other", () => {
  const rows = tableRows(referencePage("errors.md"));
  const documented = rows.map(([code, http, grpc]) => [plain(code), Number(http), grpc]);
  const inCode = Object.entries(errorCatalogue).map(([code, { http, grpc }]) => [code, http, grpcStatus[grpc]]);
  expect(documented).toEqual(inCode);
});

it("every row says what the code means and what to do", () => {
  for (const [code, , , meaning, advice] of tableRows(referencePage("errors.md"))) {
    expect(meaning, code).not.toBe("");
    expect(advice, code).not.toBe("");
  }
});

it("regression: SUSPEND_CANCELLED was in the catalogue, and nothing ever failed with it", () => {
  const files = globSync("{lib,operator,atelet,router}/src/**/*.ts", { cwd: repository }).filter(
    (name) => !name.endsWith(".test.ts"),
  );
  const code = files.map((name) => readFileSync(join(repository, name), "utf8")).join("\n");
  // new SubstrateError("CODE", …) and the functions that make one
  const unused = Object.keys(errorCatalogue).filter((name) => !new RegExp(`\\w\\(\\s*"${name}"`).test(code));
  expect(unused).toEqual([]);
});
