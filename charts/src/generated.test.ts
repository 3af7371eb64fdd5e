import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { parse } from "yaml";
import { generatedFiles } from "./all.ts";

const root = join(import.meta.dirname, "../..");
const read = (path: string): string => readFileSync(join(root, path), "utf8");

it.each(generatedFiles())("$path is as generated (else: npm run gen)", ({ path, text }) => {
  expect(read(path)).toBe(text);
});

it("the chart has the version of the parts", () => {
  const { version } = JSON.parse(read("package.json")) as { version: string };
  expect(parse(read("charts/substrate/Chart.yaml"))).toMatchObject({ version, appVersion: version });
});
