import { closeSync, existsSync, openSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { damaged } from "./damage.ts";
import { looksOf } from "./file-bytes.ts";
import { type Job } from "./job.ts";
import { pageCount, type PageHash } from "./page-hash.ts";
import { PageReader } from "./page-reader.ts";
import { PAGE_BYTES } from "./pages.ts";
import { type Works } from "./protocol.ts";
import { TableWriter } from "./table-file.ts";

/** Between two looks at a growing file that hasn't grown. */
const pollMs = 5;
/** Pages read and hashed at once. */
const chunkPages = 256;
/** Between two looks whether others are in a hurry. */
const calmEveryPages = 16 * chunkPages;

/** See Pages.table. */
export async function makeTable(
  job: Job,
  { file, table, growing, patient }: Works["table"],
  hash: PageHash,
): Promise<void> {
  const written = growing ? new Written(job) : undefined;
  while (written && !written.yet && !existsSync(file)) await written.orAfter(pollMs);
  const fd = openSync(file, "r");
  try {
    const writer = new TableWriter(table);
    try {
      const reader = new PageReader(fd, file, hash, chunkPages);
      writer.commit(await (written ? follow(job, reader, writer, written) : hashAll(job, reader, writer, { patient })));
    } catch (error) {
      writer.abandon();
      throw error;
    }
  } finally {
    closeSync(fd);
  }
}

/** Whether the growing file has been written. */
class Written {
  readonly #written: Promise<void>;
  yet = false;

  constructor(job: Job) {
    this.#written = job.ask("written", undefined).then(() => {
      this.yet = true;
    });
    // it may fail while nobody waits for it; who asks next learns of it
    this.#written.catch(() => undefined);
  }

  /** Throws Abandoned. */
  async orAfter(ms: number): Promise<void> {
    await Promise.race([this.#written, delay(ms)]);
  }
}

async function hashAll(
  job: Job,
  reader: PageReader,
  writer: TableWriter,
  { from = 0, patient = false }: { from?: number; patient?: boolean },
): Promise<number> {
  const before = looksOf(reader.fd);
  const pages = pageCount(before.sizeBytes);
  for (let at = from; at < pages; at += chunkPages) {
    if (patient && at % calmEveryPages === 0) await job.ask("calm", undefined);
    const { hashes } = reader.read(at, Math.min(chunkPages, pages - at), before.sizeBytes);
    writer.write(at, hashes);
    await job.breathe();
  }
  unchanged(reader, before.stamp);
  return before.sizeBytes;
}

/**
 * Follows a file that is written front to back through the page cache, where what lies below its size is final. Pages
 * of zeros are looked at again at the end: an image has few, and in a file that was extended first (runsc's `--direct`)
 * they are what isn't written yet.
 */
async function follow(job: Job, reader: PageReader, writer: TableWriter, written: Written): Promise<number> {
  const doubtful: { at: number; pages: number }[] = [];
  let at = 0;
  while (!written.yet) {
    const { sizeBytes } = looksOf(reader.fd);
    const pages = Math.min(chunkPages, Math.floor(sizeBytes / PAGE_BYTES) - at);
    if (pages > 0) {
      const { hashes, zeros } = reader.read(at, pages, sizeBytes);
      writer.write(at, hashes);
      if (zeros) doubtful.push({ at, pages });
      at += pages;
    } else {
      await written.orAfter(pollMs);
    }
    await job.breathe();
  }
  const { stamp } = looksOf(reader.fd);
  const sizeBytes = await hashAll(job, reader, writer, { from: at });
  for (const chunk of doubtful) {
    writer.write(chunk.at, reader.read(chunk.at, chunk.pages, sizeBytes).hashes);
    await job.breathe();
  }
  unchanged(reader, stamp);
  return sizeBytes;
}

function unchanged(reader: PageReader, stamp: string): void {
  if (looksOf(reader.fd).stamp !== stamp) throw damaged(`${reader.path} changed while it was read`);
}
