import { closeSync, openSync } from "node:fs";
import { basename } from "node:path";
import { looksOf } from "./file-bytes.ts";
import { type Job } from "./job.ts";
import { HASH_BYTES, type PageHash } from "./page-hash.ts";
import { PageReader } from "./page-reader.ts";
import { type Works } from "./protocol.ts";
import { TableFile } from "./table-file.ts";

const chunkPages = 256;

/** See Pages.verify. */
export async function verify(job: Job, request: Works["verify"], hash: PageHash): Promise<string | undefined> {
  const table = TableFile.open(request.table);
  try {
    const fd = openSync(request.file, "r");
    try {
      return await difference(job, new PageReader(fd, request.file, hash, chunkPages), table);
    } finally {
      closeSync(fd);
    }
  } finally {
    table.close();
  }
}

async function difference(job: Job, reader: PageReader, table: TableFile): Promise<string | undefined> {
  const { sizeBytes } = looksOf(reader.fd);
  const name = basename(reader.path);
  if (sizeBytes !== table.sizeBytes) return `${name} has ${sizeBytes} bytes instead of ${table.sizeBytes}`;
  const expected = Buffer.allocUnsafe(chunkPages * HASH_BYTES);
  for (let at = 0; at < table.pages; at += chunkPages) {
    const count = Math.min(chunkPages, table.pages - at);
    const { hashes } = reader.read(at, count, sizeBytes);
    table.read(at, expected.subarray(0, count * HASH_BYTES));
    if (!hashes.equals(expected.subarray(0, count * HASH_BYTES))) {
      return `${name} has other content than was written, in pages ${at} to ${at + count - 1}`;
    }
    await job.breathe();
  }
  return undefined;
}
