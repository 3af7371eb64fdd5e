import { PageThread } from "./page-thread.ts";
import {
  type Packed,
  type PackRequest,
  type Pages,
  type TableRequest,
  type Unpacked,
  type UnpackRequest,
} from "./pages.ts";

/**
 * The engine on two threads: one for what fetches an image, which a wake waits for, and one for all the rest. Each does
 * several pieces of work in turn, a few milliseconds of each at a time.
 */
export class PageEngine implements Pages {
  readonly #fetching = new PageThread();
  readonly #rest = new PageThread();

  async table({ file, table, growing, calm }: TableRequest, signal?: AbortSignal): Promise<void> {
    // the thread may ask for it only after it has failed
    growing?.written.catch(() => undefined);
    const answering = {
      ...(growing && { written: async () => growing.written.then(() => undefined) }),
      ...(calm && { calm: async () => calm().then(() => undefined) }),
    };
    const work = { file, table, growing: growing !== undefined, patient: calm !== undefined };
    await this.#rest.work("table", work, answering, signal);
  }

  verify({ file, table }: { file: string; table: string }, signal?: AbortSignal): Promise<string | undefined> {
    return this.#rest.work("verify", { file, table }, {}, signal);
  }

  pack({ file, table, base, use, keyPrefix, put }: PackRequest, signal?: AbortSignal): Promise<Packed> {
    return this.#rest.work(
      "pack",
      { file, table, base, keyPrefix },
      {
        use: ({ packKeys }) => Promise.all(packKeys.map(async (packKey) => (use ? use(packKey) : "own"))),
        put: ({ packKey, bytes, lengthBytes }) => put(packKey, bytes, lengthBytes),
      },
      signal,
    );
  }

  unpack(
    { index, indexName, file, table, reuse, lent = false, get }: UnpackRequest,
    signal?: AbortSignal,
  ): Promise<Unpacked> {
    return this.#fetching.work(
      "unpack",
      { index, indexName, file, table, reuse, lent },
      { get: ({ packKey, offset, length, into }) => get(packKey, offset, length, into) },
      signal,
    );
  }

  async close(): Promise<void> {
    await Promise.all([this.#fetching.close(), this.#rest.close()]);
  }
}
