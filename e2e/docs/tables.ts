import { readFileSync } from "node:fs";
import { join } from "node:path";

export const repository = join(import.meta.dirname, "../..");

/** A page of docs/reference. */
export function referencePage(name: string): string {
  return readFileSync(join(repository, "docs/reference", name), "utf8");
}

/**
 * The rows of all Markdown tables in the text, cells trimmed, without heads and separators.
 * @param heading only below this heading (any level), up to the next one; the whole text when left out.
 */
export function tableRows(text: string, heading?: string): string[][] {
  const lines = heading === undefined ? text.split("\n") : section(text, heading).split("\n");
  return lines
    .filter((line, index) => line.startsWith("|") && !isSeparator(line) && !isSeparator(lines[index + 1] ?? ""))
    .map((line) =>
      line
        .slice(1)
        .split(/(?<!\\)\|/)
        .slice(0, -1)
        .map((cell) => cell.trim()),
    );
}

function section(text: string, heading: string): string {
  const [, after] = text.split(new RegExp(`^#+ ${heading}$`, "m"));
  if (after === undefined) throw new Error(`there is no heading "${heading}"`);
  return after.split(/^#+ /m)[0] ?? "";
}

function isSeparator(line: string): boolean {
  return /^\|[-| :]+\|$/.test(line);
}

/** "`NAME`" → "NAME"; other text as it is. */
export function plain(cell: string | undefined): string {
  return (cell ?? "").replace(/^`(.*)`$/, "$1");
}
