import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PageEngine } from "@substrate/atelet/pages/page-engine.ts";
import { type LocalPages, type Packed } from "@substrate/atelet/pages/pages.ts";
import { captureSeries, type Series } from "./page-series.ts";
import { median } from "./statistics.ts";

// of a page table
const TABLE_HEADER_BYTES = 64;
const PAGE_HASH_BYTES = 16;

/** Medians over the generations after the first, unless said otherwise. MiB are of the image. */
export interface PagesRow {
  program: string;
  imageMib: number;
  /** Pages that the generation before didn't have, % of the image. */
  newPercent: number;
  /** The same for pieces of 64 KiB and of 1 MiB: why pages are what is shared. */
  newPercentOf64Kib: number;
  newPercentOf1Mib: number;
  /** What an upload sends, % of the image. */
  sentPercent: number;
  /** All packs that the last generation names ÷ its image. */
  storedOverImage: number;
  /** … and how many they are. */
  packs: number;
  indexKib: number;
  tableMibPerS: number;
  tableCpuSPerGib: number;
  firstPackMibPerS: number;
  firstPackCpuSPerGib: number;
  packMibPerS: number;
  packCpuSPerGib: number;
  unpackMibPerS: number;
  unpackCpuSPerGib: number;
  /** The last generation while the one before is on the node. */
  reuseMibPerS: number;
  reuseCpuSPerGib: number;
  /** sha256sum of the same bytes. */
  rawSha256MibPerS: number;
  /** dd of the same bytes into a new file. */
  rawCopyMibPerS: number;
}

export interface PagesResult {
  rounds: number;
  rows: PagesRow[];
  /** Largest of the rows. */
  storedOverImage: number;
  /** Of a later generation's upload; the largest of the images of 100 MiB and more, where fixed costs don't count. */
  packCpuSPerGib: number;
  /** Growth of this process in the largest transfer. */
  transferPeakMib: number;
}

/** Page tables, packs and indexes on images of real programs; the packs are files in the page cache. */
export async function pages({
  generations,
  say,
  signal,
}: {
  generations: number;
  say: (line: string) => void;
  signal: AbortSignal;
}): Promise<PagesResult> {
  await using undo = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), "sub-bench-"));
  undo.defer(() => rm(dir, { recursive: true, force: true }));
  const rows: PagesRow[] = [];
  const peaks: number[] = [];
  for (const series of await captureSeries(dir, { generations, say, signal })) {
    const { row, peakMib } = await measure(dir, series, signal);
    rows.push(row);
    peaks.push(peakMib);
    say(format(row));
  }
  return {
    rounds: generations,
    rows,
    storedOverImage: Math.max(...rows.map((row) => row.storedOverImage)),
    packCpuSPerGib: Math.max(...rows.filter(({ imageMib }) => imageMib >= 100).map((row) => row.packCpuSPerGib)),
    transferPeakMib: Math.max(...peaks),
  };
}

function format({ program, ...numbers }: PagesRow): string {
  const cells = Object.entries(numbers).map(([name, value]) => `${name} ${value.toFixed(value < 20 ? 2 : 0)}`);
  return `${program.padEnd(8)} ${cells.join("  ")}`;
}

interface Spent {
  mibPerS: number;
  cpuSPerGib: number;
  peakMib: number;
}

async function measure(
  dir: string,
  { program, images }: Series,
  signal: AbortSignal,
): Promise<{ row: PagesRow; peakMib: number }> {
  const packs = new PackFolder(join(dir, "packs", program));
  const engine = new PageEngine();
  const spent: Record<"table" | "pack" | "unpack" | "reuse", Spent[]> = { table: [], pack: [], unpack: [], reuse: [] };
  try {
    const packed: Packed[] = [];
    let previous: LocalPages | undefined;
    for (const [i, file] of images.entries()) {
      signal.throwIfAborted();
      const image = local(file);
      const sizeBytes = statSync(file).size;
      spent.table.push(await timed(sizeBytes, () => engine.table(image)));
      const request = { ...image, keyPrefix: `${program}/${i}-`, put: packs.put, ...(previous && { base: previous }) };
      spent.pack.push(
        await timed(sizeBytes, async () => {
          packed.push(await engine.pack(request));
        }),
      );
      const result = packed.at(-1);
      if (result === undefined) throw new Error("nothing was packed");
      writeFileSync(image.index, result.index);
      const back = local(join(dir, "back"));
      for (const [kind, reuse] of [
        ["unpack", []],
        ["reuse", previous ? [previous] : []],
      ] as const) {
        const fetch = { ...back, index: result.index, indexName: image.index, reuse, get: packs.get };
        spent[kind].push(
          await timed(sizeBytes, async () => {
            await engine.unpack(fetch);
          }),
        );
        execFileSync("cmp", [file, back.file]);
        rmSync(back.file);
      }
      previous = image;
    }
    const row = rowOf(program, images, packed, spent, packs);
    return { row, peakMib: Math.max(...[...spent.pack, ...spent.unpack, ...spent.reuse].map((each) => each.peakMib)) };
  } finally {
    await engine.close();
  }
}

function rowOf(
  program: string,
  images: readonly string[],
  packed: readonly Packed[],
  spent: Record<"table" | "pack" | "unpack" | "reuse", Spent[]>,
  packs: PackFolder,
): PagesRow {
  const later = packed.slice(1);
  const last = packed.at(-1);
  const lastImage = images.at(-1);
  if (last === undefined || lastImage === undefined) throw new Error(`${program} has no images`);
  const speed = (of: readonly Spent[]): number => median(of.map(({ mibPerS }) => mibPerS));
  const cpu = (of: readonly Spent[]): number => median(of.map(({ cpuSPerGib }) => cpuSPerGib));
  return {
    program,
    imageMib: last.sizeBytes / 2 ** 20,
    newPercent: median(later.map(({ newPages, sizeBytes }) => (newPages * 4096 * 100) / sizeBytes)),
    newPercentOf64Kib: newPercentOf(images, 16),
    newPercentOf1Mib: newPercentOf(images, 256),
    sentPercent: median(later.map(({ storedBytes, sizeBytes }) => (storedBytes * 100) / sizeBytes)),
    storedOverImage: packs.bytesOf(last.packs) / last.sizeBytes,
    packs: last.packs.length,
    indexKib: last.index.length / 1024,
    tableMibPerS: speed(spent.table),
    tableCpuSPerGib: cpu(spent.table),
    firstPackMibPerS: speed(spent.pack.slice(0, 1)),
    firstPackCpuSPerGib: cpu(spent.pack.slice(0, 1)),
    packMibPerS: speed(spent.pack.slice(1)),
    packCpuSPerGib: cpu(spent.pack.slice(1)),
    unpackMibPerS: speed(spent.unpack),
    unpackCpuSPerGib: cpu(spent.unpack),
    reuseMibPerS: speed(spent.reuse.slice(1)),
    reuseCpuSPerGib: cpu(spent.reuse.slice(1)),
    rawSha256MibPerS: raw(last.sizeBytes, "sha256sum", [lastImage]),
    rawCopyMibPerS: raw(last.sizeBytes, "dd", [`if=${lastImage}`, `of=${lastImage}.copy`, "bs=1M", "status=none"]),
  };
}

/** Of each image, the pieces that the one before doesn't have anywhere; told by the hashes of their pages. */
function newPercentOf(images: readonly string[], pagesPerPiece: number): number {
  const pieces = images.map((image) => {
    const hashes = readFileSync(local(image).table).subarray(TABLE_HEADER_BYTES).toString("hex");
    const length = pagesPerPiece * 2 * PAGE_HASH_BYTES;
    return Array.from({ length: Math.ceil(hashes.length / length) }, (_none, i) =>
      hashes.slice(i * length, (i + 1) * length),
    );
  });
  const shares = pieces.slice(1).map((later, i) => {
    const before = new Set(pieces[i]);
    return (later.filter((piece) => !before.has(piece)).length * 100) / later.length;
  });
  return median(shares);
}

function local(file: string): LocalPages {
  return { file, table: `${file}.table`, index: `${file}.index` };
}

function raw(sizeBytes: number, program: string, args: string[]): number {
  const startMs = performance.now();
  execFileSync(program, args);
  return sizeBytes / 2 ** 20 / ((performance.now() - startMs) / 1000);
}

/** Of this process, its threads included. */
async function timed(sizeBytes: number, work: () => Promise<void>): Promise<Spent> {
  writeFileSync("/proc/self/clear_refs", "5");
  const startMib = peakMib();
  const start = process.cpuUsage();
  const startMs = performance.now();
  await work();
  const seconds = (performance.now() - startMs) / 1000;
  const { user, system } = process.cpuUsage(start);
  return {
    mibPerS: sizeBytes / 2 ** 20 / seconds,
    cpuSPerGib: (user + system) / 1e6 / (sizeBytes / 2 ** 30),
    peakMib: peakMib() - startMib,
  };
}

/** The largest resident size since it was last cleared. */
function peakMib(): number {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1]) / 1024;
}

class PackFolder {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
    mkdirSync(dir, { recursive: true });
  }

  put = async (packKey: string, bytes: ArrayBuffer, lengthBytes: number): Promise<ArrayBuffer> => {
    const file = await open(this.#path(packKey), "w");
    await file.write(new Uint8Array(bytes, 0, lengthBytes));
    await file.close();
    return bytes;
  };

  get = async (packKey: string, offset: number, length: number, into: ArrayBuffer): Promise<ArrayBuffer> => {
    const file = await open(this.#path(packKey), "r");
    await file.read(new Uint8Array(into), 0, length, offset);
    await file.close();
    return into;
  };

  bytesOf(packKeys: readonly string[]): number {
    return packKeys.reduce((sum, packKey) => sum + statSync(this.#path(packKey)).size, 0);
  }

  #path(packKey: string): string {
    return join(this.#dir, packKey.replaceAll("/", "_"));
  }
}
