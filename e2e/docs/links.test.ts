import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { repository } from "./tables.ts";

/** Targets of Markdown links that are files here, without their anchors. */
function localLinks(text: string): string[] {
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => (target ?? "").split("#")[0] ?? "")
    .filter((target) => target !== "" && !/^[a-z]+:/.test(target));
}

it.each(globSync(["README.md", "docs/**/*.md"], { cwd: repository }))("every link of %s leads to a file", (page) => {
  const folder = dirname(join(repository, page));
  const broken = localLinks(readFileSync(join(repository, page), "utf8")).filter(
    (target) => !existsSync(join(folder, target)),
  );
  expect(broken).toEqual([]);
});
