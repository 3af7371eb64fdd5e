import { closeSync, openSync, readFileSync } from "node:fs";
import { asDamage, damaged } from "./damage.ts";
import { looksOf } from "./file-bytes.ts";
import { type Job } from "./job.ts";
import { makeTable } from "./make-table.ts";
import { type Known, match, NOT_SHARED } from "./matching.ts";
import { HASH_BYTES, type PageHash } from "./page-hash.ts";
import { decodeIndex, encodeIndex, firstPages, type Pack, type PageIndex, ZERO_PAGE } from "./page-index.ts";
import { PageReader } from "./page-reader.ts";
import { PackWriter } from "./pack-writer.ts";
import { PAGE_BYTES, type Packed } from "./pages.ts";
import { type Works } from "./protocol.ts";
import { SEGMENT_PAGES } from "./segment.ts";
import { livePages, wornPacks } from "./sharing.ts";
import { TableFile } from "./table-file.ts";

/** What of the base is named: packs, and for each page of the image what `match` says. */
interface Shared {
  packs: Pack[];
  sources: Uint32Array<ArrayBuffer>;
}

/** See Pages.pack. */
export async function pack(job: Job, request: Works["pack"], hash: PageHash): Promise<Packed> {
  const table = await tableOf(job, request, hash);
  try {
    const base = openBase(request.base);
    try {
      const shared = await share(job, table, base, hash);
      return { ...(await writeNew(job, request, table, shared, hash)), baseDamage: base.damage };
    } finally {
      base.table?.close();
    }
  } finally {
    table.close();
  }
}

async function tableOf(job: Job, { file, table }: Works["pack"], hash: PageHash): Promise<TableFile> {
  try {
    return TableFile.open(table);
  } catch (error) {
    asDamage(error);
    await makeTable(job, { file, table, growing: false, patient: false }, hash);
    return TableFile.open(table);
  }
}

interface Base {
  table?: TableFile;
  index?: PageIndex;
  damage: string | undefined;
}

function openBase(base: Works["pack"]["base"]): Base {
  if (base === undefined) return { damage: undefined };
  let table: TableFile | undefined;
  try {
    const index = decodeIndex(readFileSync(base.index), base.index);
    table = TableFile.open(base.table);
    if (table.sizeBytes !== index.sizeBytes) throw damaged(`${base.table} and ${base.index} are of different images`);
    return { table, index, damage: undefined };
  } catch (error) {
    table?.close();
    return { damage: asDamage(error) };
  }
}

async function share(job: Job, image: TableFile, { table, index }: Base, hash: PageHash): Promise<Shared> {
  if (!table || !index || index.packs.length === 0) {
    return { packs: [], sources: await match(job, image, undefined, hash) };
  }
  const { packs } = index;
  const starts = firstPages(packs);
  const known: Known = { table, pages: index.pages, storedPages: starts.at(-1) ?? 0 };
  const uses = await job.ask("use", { packKeys: packs.map(({ key }) => key) });
  withhold(known, starts, (pack) => (uses[pack] ?? "none") === "none");
  let sources = await match(job, image, known, hash);
  let live = livePages(packs, sources);
  const worn = wornPacks(packs, live, uses);
  if (worn.includes(true)) {
    withhold(known, starts, (pack) => worn[pack] === true);
    sources = await match(job, image, known, hash);
    live = livePages(packs, sources);
  }
  return dropUnnamed(packs, live, sources);
}

/** Takes pages of some packs out of what may be shared. */
function withhold(known: Known, starts: readonly number[], which: (pack: number) => boolean): void {
  const withheld = new Uint8Array(known.storedPages);
  for (let pack = 0; pack + 1 < starts.length; pack += 1) {
    if (which(pack)) withheld.fill(1, starts[pack], starts[pack + 1]);
  }
  const { pages } = known;
  for (const [at, page] of pages.entries()) if (withheld[page] === 1) pages[at] = NOT_SHARED;
}

/** Numbers stored pages by the packs that are still named. */
function dropUnnamed(packs: readonly Pack[], live: readonly number[], sources: Uint32Array<ArrayBuffer>): Shared {
  const kept = packs.filter((_pack, i) => (live[i] ?? 0) > 0);
  const starts = firstPages(packs);
  const storedPages = starts.at(-1) ?? 0;
  const keptPages = firstPages(kept).at(-1) ?? 0;
  // how much lower the numbers of each pack's pages, and those of the image's own, become
  const lower = new Uint32Array(storedPages);
  let dropped = 0;
  for (let pack = 0; pack < packs.length; pack += 1) {
    const [start, end] = [starts[pack] ?? 0, starts[pack + 1] ?? 0];
    if ((live[pack] ?? 0) > 0) lower.fill(dropped, start, end);
    else dropped += end - start;
  }
  for (const [at, source] of sources.entries()) {
    if (source !== ZERO_PAGE) sources[at] = source - (lower[source] ?? storedPages - keptPages);
  }
  return { packs: kept, sources };
}

/** Packs the image's own pages, and makes the index out of what `match` said. */
async function writeNew(
  job: Job,
  { file, keyPrefix }: Works["pack"],
  table: TableFile,
  { packs, sources }: Shared,
  hash: PageHash,
): Promise<Omit<Packed, "baseDamage">> {
  const fd = openSync(file, "r");
  try {
    const { sizeBytes } = looksOf(fd);
    if (sizeBytes !== table.sizeBytes) throw damaged(`${file} has ${sizeBytes} bytes instead of ${table.sizeBytes}`);
    const storedPages = firstPages(packs).at(-1) ?? 0;
    const reader = new PageReader(fd, file, hash, SEGMENT_PAGES);
    const writer = new PackWriter(job, keyPrefix);
    const expected = Buffer.allocUnsafe(SEGMENT_PAGES * HASH_BYTES);
    let newPages = 0;
    for (let at = 0; at < sources.length;) {
      const count = newRun(sources, at, storedPages);
      if (count === 0) {
        const source = sources[at] ?? ZERO_PAGE;
        // a copy of an earlier page of the image, whose number is known by now
        if (source >= storedPages && source !== ZERO_PAGE) sources[at] = sources[source - storedPages] ?? ZERO_PAGE;
        at += 1;
        continue;
      }
      const place = writer.place(count);
      const hashes = reader.readInto(place, at, sizeBytes);
      const read = place.length / PAGE_BYTES;
      table.read(at, expected.subarray(0, hashes.length));
      if (!hashes.equals(expected.subarray(0, hashes.length))) {
        throw damaged(`${file} has other content than its table says, in pages ${at} to ${at + read - 1}`);
      }
      await writer.added(place.length);
      for (let i = 0; i < read; i += 1) sources[at + i] = storedPages + newPages + i;
      newPages += read;
      at += read;
    }
    const { packs: newPacks, storedBytes } = await writer.end();
    const all = [...packs, ...newPacks];
    const index = Uint8Array.from(encodeIndex({ sizeBytes, packs: all, pages: sources }));
    return { index, sizeBytes, packs: all.map(({ key }) => key), newPages, storedBytes };
  } finally {
    closeSync(fd);
  }
}

/** How many pages from here on are the image's own and new; at most a segment. */
function newRun(sources: Uint32Array, at: number, storedPages: number): number {
  const end = Math.min(sources.length, at + SEGMENT_PAGES);
  let next = at;
  while (next < end && sources[next] === storedPages + next) next += 1;
  return next - at;
}
