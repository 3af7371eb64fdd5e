import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { repository } from "./tables.ts";

/** A fenced block of a page. */
export interface Block {
  /** `docs/start.md:12`, of the fence. */
  place: string;
  language: string;
  body: string;
  /** Of a comment before the block, `<!-- not run: REASON -->`: why no test runs it. */
  notRun: string | undefined;
  /** Of comments before the block, `<!-- shows: TEXT -->`: what its output must contain. */
  shows: string[];
  /** Of a comment before the block, `<!-- from: PATH -->`: the file of the repository that it is a copy of. */
  from: string | undefined;
}

/** All pages that people read, below the repository. */
export const pages = globSync(["README.md", "docs/**/*.md"], { cwd: repository }).sort();

export function pageText(page: string): string {
  return readFileSync(join(repository, page), "utf8");
}

const fence = /^((?:<!-- (?:not run|shows|from): .*? -->\n)*)```(\S*)\n(.*?)^```$/gms;

export function blocksOf(page: string): Block[] {
  const text = pageText(page);
  return [...text.matchAll(fence)].map(({ index, 0: all, 1: notes = "", 2: language = "", 3: body = "" }) => {
    const said = [...notes.matchAll(/<!-- (not run|shows|from): (.*?) -->/gs)].map(([, kind, what = ""]) => ({
      kind,
      what: what.trim(),
    }));
    const line = text.slice(0, index + all.indexOf("```")).split("\n").length;
    return {
      place: `${page}:${line}`,
      language,
      body,
      notRun: said.find(({ kind }) => kind === "not run")?.what,
      from: said.find(({ kind }) => kind === "from")?.what,
      shows: said.filter(({ kind }) => kind === "shows").map(({ what }) => what),
    };
  });
}

/** Those of a page that a shell runs, one after the other. */
export function commandsOf(page: string): Block[] {
  return blocksOf(page).filter(({ language, notRun }) => language === "sh" && notRun === undefined);
}
