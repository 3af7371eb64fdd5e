import fc from "fast-check";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { Job } from "./job.ts";
import { match, NOT_SHARED } from "./matching.ts";
import { HASH_BYTES, PageHash } from "./page-hash.ts";
import { ZERO_PAGE } from "./page-index.ts";
import { PAGE_BYTES } from "./pages.ts";
import { TableFile, TableWriter } from "./table-file.ts";

const dir = mkdtempSync(join(tmpdir(), "matching-"));
afterAll(() => {
  rmSync(dir, { recursive: true });
});
const job = new Job(new Int32Array(1), () => undefined);

/** A table of pages of which equal numbers are equal; 0 is a page of zeros. */
function tableOf(name: string, numbers: readonly number[], hash: PageHash): TableFile {
  const hashes = Buffer.alloc(numbers.length * HASH_BYTES);
  for (const [at, number] of numbers.entries()) {
    const to = at * HASH_BYTES;
    if (number === 0) hashes.set(hash.zero, to);
    // many share their first word, so that they meet in the map
    else [number % 3, 7, number, number % 5].forEach((word, i) => hashes.writeUInt32LE(word, to + 4 * i));
  }
  const writer = new TableWriter(join(dir, name));
  writer.write(0, hashes);
  writer.commit(numbers.length * PAGE_BYTES);
  return TableFile.open(join(dir, name));
}

it("finds stored pages, earlier ones of the image, and zeros, in however many passes", async () => {
  const hash = await PageHash.create();
  const numbers = fc.array(fc.nat(60), { maxLength: 200 });
  await fc.assert(
    fc.asyncProperty(
      numbers,
      numbers,
      fc.nat(4),
      fc.integer({ min: 20, max: 500 }),
      async (old, image, kept, perPass) => {
        // every fifth stored page may not be shared
        const pages = Uint32Array.from(old, (number, i) =>
          number === 0 ? ZERO_PAGE : i % 5 === kept ? NOT_SHARED : i,
        );
        const known = { table: tableOf("old", old, hash), pages, storedPages: old.length };
        const table = tableOf("new", image, hash);
        const sources = await match(job, table, known, hash, perPass);
        expect([...sources]).toEqual(
          image.map((number) => {
            if (number === 0) return ZERO_PAGE;
            const stored = old.findIndex((other, i) => other === number && i % 5 !== kept);
            return stored >= 0 ? stored : old.length + image.indexOf(number);
          }),
        );
        known.table.close();
        table.close();
      },
    ),
  );
});
