import { access, appendFile, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createLogger } from "@substrate/lib/log.ts";
import { PageEngine } from "../pages/page-engine.ts";
import { GrowingTable } from "./growing-table.ts";

const pages = new PageEngine();
const log = createLogger("test", "error");
let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "growing-"));
});
afterAll(async () => {
  await pages.close();
  await rm(dir, { recursive: true });
});

it("is there once the image is, and right", async () => {
  const files = { file: join(dir, "pages.img"), table: join(dir, "pages.table") };
  const table = new GrowingTable(pages, { ...files, log });
  for (const letter of "abcd") await appendFile(files.file, letter.repeat(5000));
  await table.ready();
  expect(await pages.verify(files)).toBeUndefined();
});

it("leaves nothing where the image was not written, even if there was none", async () => {
  const files = { file: join(dir, "none", "pages.img"), table: join(dir, "none.table") };
  const table = new GrowingTable(pages, { ...files, log });
  await table.abandon();
  await expect(access(files.table)).rejects.toThrow("ENOENT");
  expect((await readdir(dir)).filter((name) => name.startsWith("none"))).toEqual([]);
});

it("a table that can't be made holds nobody up", async () => {
  const files = { file: join(dir, "pages.img"), table: join(dir, "no-folder", "pages.table") };
  const silent = Object.assign(createLogger("test", "error"), { warn: () => undefined });
  await new GrowingTable(pages, { ...files, log: silent }).ready();
});
