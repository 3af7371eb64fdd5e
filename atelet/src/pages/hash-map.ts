import { randomFillSync } from "node:crypto";

/** Words of 32 bits of a hash. */
export const HASH_WORDS = 4;

/**
 * Spreads hashes evenly by a secret of its own: a program that makes pages whose hashes are alike, which xxh128 allows,
 * doesn't slow anything down.
 */
export class Spread {
  readonly #secret = randomFillSync(new Int32Array(HASH_WORDS));

  /** 32 bits of the hash at `at` (in words); the upper ones are the more even. */
  of(hashes: Uint32Array, at: number): number {
    let sum = 0;
    for (let i = 0; i < HASH_WORDS; i += 1)
      sum += Math.imul((hashes[at + i] ?? 0) ^ (sum >>> 16), (this.#secret[i] ?? 0) | 1);
    return sum >>> 0;
  }
}

/** From hashes of pages to numbers; of a fixed capacity, 28 bytes an entry, no objects. */
export class HashMap {
  readonly #hashes: Uint32Array;
  readonly #values: Uint32Array;
  /** Numbers of entries, from 1; 0 is free. At most half are taken. */
  readonly #slots: Uint32Array;
  readonly #mask: number;
  readonly #spread = new Spread();
  #entries = 0;

  constructor(capacity: number) {
    const slots = 2 ** Math.ceil(Math.log2(2 * capacity + 2));
    this.#hashes = new Uint32Array(capacity * HASH_WORDS);
    this.#values = new Uint32Array(capacity);
    this.#slots = new Uint32Array(slots);
    this.#mask = slots - 1;
  }

  /** The value of the hash at `at` (in words); the first value given for it stays. A full map takes no more. */
  add(hashes: Uint32Array, at: number, value: number): number {
    const [a, b, c, d] = [hashes[at], hashes[at + 1], hashes[at + 2], hashes[at + 3]];
    const own = this.#hashes;
    const spread = this.#spread.of(hashes, at);
    let slot = (spread ^ (spread >>> 15)) & this.#mask;
    for (;;) {
      const number = this.#slots[slot] ?? 0;
      if (number === 0) break;
      const entry = (number - 1) * HASH_WORDS;
      if (own[entry] === a && own[entry + 1] === b && own[entry + 2] === c && own[entry + 3] === d) {
        return this.#values[number - 1] ?? 0;
      }
      slot = (slot + 1) & this.#mask;
    }
    const entry = this.#entries;
    if (entry === this.#values.length) return value;
    own.set([a ?? 0, b ?? 0, c ?? 0, d ?? 0], entry * HASH_WORDS);
    this.#values[entry] = value;
    this.#entries += 1;
    this.#slots[slot] = this.#entries;
    return value;
  }
}
