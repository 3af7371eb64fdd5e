import { status as grpcStatus } from "@grpc/grpc-js";
import { errorCatalogue } from "@substrate/lib/errors.ts";
import { expect, it } from "vitest";
import { plain, referencePage, tableRows } from "./tables.ts";

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
