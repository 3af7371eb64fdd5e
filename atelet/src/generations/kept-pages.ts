import { link, mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { readJson, removeFolder, writeJson } from "../node-files.ts";
import { type PageFiles } from "./folder.ts";

const recordSchema = z.object({ format: z.literal(1), key: z.string() });

const recordName = "stored.json";

/**
 * Page table and page index of the generation that one actor's store head names, which outlive its files here: the next
 * one is stored by what differs from it. <dir>/{stored.json, pages.table, pages.index}
 */
export class KeptPages {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** @returns undefined if none are kept, or not whole. */
  async known(): Promise<(PageFiles & { key: string }) | undefined> {
    const record = recordSchema.safeParse(await readJson(join(this.#dir, recordName)).catch(() => undefined));
    return record.success ? { key: record.data.key, ...this.#files(this.#dir) } : undefined;
  }

  /** @param key of its manifest. */
  async keep(key: string, table: string, index: Uint8Array): Promise<void> {
    const partial = `${this.#dir}.partial`;
    await removeFolder(partial);
    await mkdir(partial, { mode: 0o700 });
    const files = this.#files(partial);
    await link(table, files.table);
    await writeFile(files.index, index, { mode: 0o600 });
    await writeJson(join(partial, recordName), { format: 1, key }, { durable: false });
    await removeFolder(this.#dir);
    await rename(partial, this.#dir);
  }

  /** What a crash has left half-made. */
  async tidy(): Promise<void> {
    await removeFolder(`${this.#dir}.partial`);
  }

  #files(dir: string): PageFiles {
    return { table: join(dir, "pages.table"), index: join(dir, "pages.index") };
  }
}
