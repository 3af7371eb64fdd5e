import { open } from "node:fs/promises";
import { z } from "zod";
import { isMissing, readJson, writeJson } from "../node-files.ts";
import { type Cut, olderPiece, rotate } from "./rotation.ts";

/** How much is read at once. */
const CHUNK_BYTES = 64 * 1024;

/** All three count bytes since the program's first. */
const placesSchema = z.object({
  /** Where the file begins, and where the older piece does. */
  base: z.number().int().min(0),
  olderBase: z.number().int().min(0),
  /** Up to where it was passed on. */
  position: z.number().int().min(0),
});

interface Piece {
  chunk: Buffer;
  at: number;
  rest: boolean;
  isEnd: boolean;
}

/**
 * Follows one program's output through rotations, from where it was left. The files are the buffer: what is not passed on
 * before it is rotated away twice is dropped, and counted.
 */
export class Tail {
  readonly path: string;
  readonly #placesPath: string;
  #places: z.infer<typeof placesSchema> = { base: 0, olderBase: 0, position: 0 };
  #saved = "";
  #turn: Promise<unknown> = Promise.resolve();
  #droppedBytes = 0;

  private constructor(path: string, placesPath: string) {
    this.path = path;
    this.#placesPath = placesPath;
  }

  /** @param placesPath where it is kept how far it came. */
  static async open(path: string, placesPath: string): Promise<Tail> {
    const tail = new Tail(path, placesPath);
    await tail.#load();
    return tail;
  }

  /** What was lost since the last call. */
  takeDropped(): number {
    const dropped = this.#droppedBytes;
    this.#droppedBytes = 0;
    return dropped;
  }

  /**
   * The next piece; empty when there is nothing new. `rest` says whether more is there already, `isEnd` that nothing will
   * follow in the same file.
   */
  read(): Promise<Piece> {
    return this.#inTurn(() => this.#read());
  }

  async #read(): Promise<Piece> {
    const at = this.#skipDropped();
    const { base, olderBase } = this.#places;
    const isOlder = at < base;
    const file = await openIfExists(isOlder ? olderPiece(this.path) : this.path);
    if (file === undefined) {
      if (isOlder) this.#drop(base);
      return { chunk: Buffer.alloc(0), at, rest: isOlder, isEnd: false };
    }
    try {
      const from = at - (isOlder ? olderBase : base);
      const length = isOlder ? Math.min(CHUNK_BYTES, base - at) : CHUNK_BYTES;
      const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(length), position: from });
      // A piece that is shorter than was written down: a power cut took its end.
      if (isOlder && bytesRead === 0) this.#drop(base);
      const chunk = buffer.subarray(0, bytesRead);
      const isEnd = isOlder && at + bytesRead === base;
      return { chunk, at, rest: isOlder || bytesRead === CHUNK_BYTES, isEnd };
    } finally {
      await file.close();
    }
  }

  /** Up to there it was passed on. */
  advance(position: number): void {
    this.#places.position = Math.max(this.#places.position, position);
  }

  /** Bounds the output, as `rotate`. */
  rotate(): Promise<Cut | undefined> {
    return this.#inTurn(async () => {
      const cut = await rotate(this.path);
      if (cut !== undefined) await this.#rotated(cut);
      return cut;
    });
  }

  async #rotated(cut: Cut): Promise<void> {
    const { base } = this.#places;
    this.#places.base = base + cut.bytes;
    this.#places.olderBase = cut.problem === undefined ? base : this.#places.base;
    this.#skipDropped();
    await this.save();
  }

  /** Not durably: after a power cut some lines come twice. */
  async save(): Promise<void> {
    const text = JSON.stringify(this.#places);
    if (text === this.#saved) return;
    await writeJson(this.#placesPath, this.#places, { durable: false });
    this.#saved = text;
  }

  async #load(): Promise<void> {
    const { data } = placesSchema.safeParse(await readJson(this.#placesPath));
    if (data !== undefined) this.#places = data;
    const [size, olderSize] = await Promise.all([sizeOf(this.path), sizeOf(olderPiece(this.path))]);
    // It was rotated, and that could not be written down any more.
    if (size < this.#places.position - this.#places.base) {
      this.#places.olderBase = this.#places.base;
      this.#places.base += olderSize;
    }
    if (this.#places.position > this.#places.base + size) this.#places.base = this.#places.position;
    if (this.#places.position === 0 && this.#places.base === 0 && olderSize > 0) this.#places.base = olderSize;
  }

  /** What is read and where it was must belong together. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  #skipDropped(): number {
    if (this.#places.position < this.#places.olderBase) this.#drop(this.#places.olderBase);
    return this.#places.position;
  }

  #drop(to: number): void {
    this.#droppedBytes += to - this.#places.position;
    this.#places.position = to;
  }
}

async function openIfExists(path: string): Promise<Awaited<ReturnType<typeof open>> | undefined> {
  try {
    return await open(path, "r");
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

async function sizeOf(path: string): Promise<number> {
  const file = await openIfExists(path);
  if (file === undefined) return 0;
  try {
    return (await file.stat()).size;
  } finally {
    await file.close();
  }
}
