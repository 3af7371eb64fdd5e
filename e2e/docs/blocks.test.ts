import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { blocksOf, pages, pageText } from "./pages.ts";
import { repository } from "./tables.ts";

const blocks = pages.flatMap(blocksOf);

/** Those with commands are `sh`: e2e/local/shown-commands.test.ts runs them, page by page. */
const languages = new Set(["sh", "yaml", "json", "go", "js", "python", "text", ""]);

it("every block of commands is marked as such, so that it is run, or says why it is not", () => {
  expect(blocks.filter(({ language }) => !languages.has(language)).map(({ place }) => place)).toEqual([]);
  const commandsElsewhere = blocks.filter(
    ({ language, body }) => language !== "sh" && /^\s*(\$ |(kubectl|npm|curl|go|sudo) [a-z-])/m.test(body),
  );
  expect(commandsElsewhere.map(({ place }) => place)).toEqual([]);
  const fences = pages.flatMap((page) => pageText(page).match(/^\s*(```|~~~)/gm) ?? []);
  expect(fences).toHaveLength(2 * blocks.length);
});

it("a block that is not run has a reason that a reader understands", () => {
  for (const { place, notRun } of blocks) if (notRun !== undefined) expect(notRun.length, place).toBeGreaterThan(10);
});

it("every comment about a block stands right before one", () => {
  const comments = pages.flatMap((page) => pageText(page).match(/^<!-- (not run|shows|from):/gm) ?? []);
  const used = blocks.flatMap(({ notRun, shows, from }) => [...shows, notRun, from]);
  expect(used.filter((note) => note !== undefined)).toHaveLength(comments.length);
});

it("every YAML block is YAML", () => {
  for (const { place, language, body } of blocks) {
    if (language !== "yaml") continue;
    const documents = parseAllDocuments(body);
    expect(Array.isArray(documents) ? documents.flatMap(({ errors }) => errors) : ["empty"], place).toEqual([]);
  }
});

it("a block that comes from a file is that file", () => {
  const copies = blocks.filter(({ from }) => from !== undefined);
  expect(copies.length).toBeGreaterThan(0);
  for (const { place, from = "", body } of copies) {
    expect(body, place).toBe(readFileSync(join(repository, from), "utf8"));
  }
});
