import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { damaged } from "./damage.ts";
import { PageEngine } from "./page-engine.ts";
import { type LocalPages, PAGE_BYTES, type Packed, type PackUse, type Unpacked } from "./pages.ts";

/** Packs in memory, and images in a folder. */
export class TestStore {
  readonly engine = new PageEngine();
  readonly packs = new Map<string, ArrayBuffer>();
  readonly dir: string;
  /** Bytes asked for by all unpacks. */
  gotBytes = 0;

  private constructor(dir: string) {
    this.dir = dir;
  }

  static async create(): Promise<TestStore> {
    return new TestStore(await mkdtemp(join(tmpdir(), "pages-")));
  }

  async remove(): Promise<void> {
    await this.engine.close();
    await rm(this.dir, { recursive: true });
  }

  local(name: string): LocalPages {
    const file = join(this.dir, name);
    return { file, table: `${file}.table`, index: `${file}.index` };
  }

  /** Writes an image and packs it; its index is kept beside it, as the atelet does. */
  async store(
    name: string,
    content: Uint8Array,
    { base, use, signal }: { base?: LocalPages; use?: (packKey: string) => PackUse; signal?: AbortSignal } = {},
  ): Promise<Packed> {
    const { file, table, index } = this.local(name);
    await writeFile(file, content);
    await this.engine.table({ file, table });
    const packed = await this.engine.pack(
      { file, table, ...(base && { base }), ...(use && { use }), keyPrefix: `a/packs/${name}-`, put: this.put },
      signal,
    );
    await writeFile(index, packed.index);
    return packed;
  }

  put = (packKey: string, bytes: ArrayBuffer, lengthBytes: number): Promise<ArrayBuffer> => {
    this.packs.set(packKey, bytes.slice(0, lengthBytes));
    return Promise.resolve(bytes);
  };

  get = (packKey: string, offset: number, length: number, into: ArrayBuffer): Promise<ArrayBuffer> => {
    const bytes = this.packs.get(packKey);
    if (!bytes) throw new Error(`no pack ${packKey}`);
    this.gotBytes += length;
    if (offset + length > bytes.byteLength) return Promise.reject(damaged(`${packKey} is cut short`));
    new Uint8Array(into).set(new Uint8Array(bytes, offset, length));
    return Promise.resolve(into);
  };

  async fetch(
    name: string,
    as: string,
    {
      reuse = [],
      lent = true,
      signal,
      get = this.get,
    }: { reuse?: LocalPages[]; lent?: boolean; signal?: AbortSignal; get?: TestStore["get"] } = {},
  ): Promise<Unpacked> {
    const index = await readFile(this.local(name).index);
    const { file, table } = this.local(as);
    return this.engine.unpack({ index, indexName: `${name}.index`, file, table, reuse, lent, get }, signal);
  }

  /** Of the packs that an index names. */
  storedBytes(keys: readonly string[]): number {
    return keys.reduce((sum, key) => sum + (this.packs.get(key)?.byteLength ?? 0), 0);
  }
}

/** Pages of random bytes. */
export function randomPages(count: number): Buffer {
  return randomBytes(count * PAGE_BYTES);
}
