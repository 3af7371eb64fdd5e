import { closeSync, openSync, readFileSync } from "node:fs";
import { asDamage, damaged } from "./damage.ts";
import { looksOf } from "./file-bytes.ts";
import { type ImageWriter } from "./image-writer.ts";
import { type Job } from "./job.ts";
import { HASH_BYTES, type PageHash } from "./page-hash.ts";
import { decodeIndex, firstPages, type PageIndex, ZERO_PAGE } from "./page-index.ts";
import { PageReader } from "./page-reader.ts";
import { type LocalPages } from "./pages.ts";
import { TableFile } from "./table-file.ts";

const chunkPages = 256;
/** Instead of an image's number: a page that was found and turned out damaged. */
const LOST = 255;

/** Which pages of an image other images on this node have, and the copying of them. */
export class Reuse {
  readonly #images: readonly LocalPages[];
  /** For each page of the new image: which local image has it, from 1; 0 if none. */
  readonly #image: Uint8Array;
  /** … and as which of its pages. */
  readonly #page: Uint32Array;
  readonly damage: string[] = [];

  /** At most the first 254 images are looked at. */
  constructor(target: PageIndex, images: readonly LocalPages[]) {
    this.#images = images.slice(0, LOST - 1);
    this.#image = new Uint8Array(target.pages.length);
    this.#page = new Uint32Array(target.pages.length);
    for (const [i, image] of this.#images.entries()) this.#find(target, image, i + 1);
  }

  has(page: number): boolean {
    return this.#image[page] !== 0;
  }

  /** Whether a page that it had was damaged, and is still to be written. */
  lost(page: number): boolean {
    return this.#image[page] === LOST;
  }

  /** Copies all that was found and is not damaged. Returns the pages copied. */
  async copy(job: Job, into: ImageWriter, hash: PageHash): Promise<number> {
    let copied = 0;
    for (const [i, image] of this.#images.entries()) {
      if (this.#image.includes(i + 1)) copied += await this.#copyFrom(job, image, i + 1, into, hash);
    }
    return copied;
  }

  #find(target: PageIndex, image: LocalPages, id: number): void {
    let local: PageIndex;
    try {
      local = decodeIndex(readFileSync(image.index), image.index);
    } catch (error) {
      this.damage.push(asDamage(error));
      return;
    }
    const starts = firstPages(target.packs);
    const localStarts = firstPages(local.packs);
    // for each stored page that the target names, by its number there: the local page, from 1
    const where = new Uint32Array(starts.at(-1) ?? 0);
    const shifts = new Float64Array(localStarts.at(-1) ?? 0).fill(NaN);
    for (const [i, { key }] of local.packs.entries()) {
      const same = target.packs.findIndex((pack) => pack.key === key);
      if (same >= 0) shifts.fill((starts[same] ?? 0) - (localStarts[i] ?? 0), localStarts[i], localStarts[i + 1]);
    }
    for (const [page, number] of local.pages.entries()) {
      const shift = shifts[number] ?? NaN;
      if (!Number.isNaN(shift)) where[number + shift] = page + 1;
    }
    for (const [page, number] of target.pages.entries()) {
      const found = number === ZERO_PAGE ? 0 : (where[number] ?? 0);
      if (found === 0 || this.#image[page] !== 0) continue;
      this.#image[page] = id;
      this.#page[page] = found - 1;
    }
  }

  async #copyFrom(job: Job, image: LocalPages, id: number, into: ImageWriter, hash: PageHash): Promise<number> {
    try {
      const table = TableFile.open(image.table);
      try {
        const fd = openSync(image.file, "r");
        try {
          return await this.#copyChecked(job, new PageReader(fd, image.file, hash, chunkPages), table, id, into);
        } finally {
          closeSync(fd);
        }
      } finally {
        table.close();
      }
    } catch (error) {
      this.damage.push(asDamage(error));
      this.#image.forEach((is, page) => {
        if (is === id) this.#image[page] = LOST;
      });
      return 0;
    }
  }

  async #copyChecked(job: Job, reader: PageReader, table: TableFile, id: number, into: ImageWriter): Promise<number> {
    const { sizeBytes } = looksOf(reader.fd);
    if (sizeBytes !== table.sizeBytes) {
      throw damaged(`${reader.path} has ${sizeBytes} bytes instead of ${table.sizeBytes}`);
    }
    const expected = Buffer.allocUnsafe(chunkPages * HASH_BYTES);
    let copied = 0;
    let different: number | undefined;
    for (let at = 0; at < this.#image.length;) {
      if (this.#image[at] !== id) {
        at += 1;
        continue;
      }
      const first = this.#page[at] ?? 0;
      const count = this.#run(at, id);
      const { pages, hashes } = reader.read(first, count, sizeBytes);
      table.read(first, expected.subarray(0, hashes.length));
      if (hashes.equals(expected.subarray(0, hashes.length))) {
        into.write(at, pages, hashes);
        copied += count;
      } else {
        different ??= first;
        this.#image.fill(LOST, at, at + count);
      }
      at += count;
      await job.breathe();
    }
    if (different !== undefined) {
      this.damage.push(`${reader.path} has other content than its table says, from about page ${different} on`);
    }
    return copied;
  }

  /** Pages from here on that lie in a row in the local image, too. */
  #run(at: number, id: number): number {
    const first = this.#page[at] ?? 0;
    let count = 1;
    while (count < chunkPages && this.#image[at + count] === id && this.#page[at + count] === first + count) count += 1;
    return count;
  }
}
