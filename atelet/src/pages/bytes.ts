import { damaged } from "./damage.ts";

/** Writes numbers as varints, texts and bytes, one after the other. */
export class ByteWriter {
  #bytes = Buffer.allocUnsafe(4096);
  #length = 0;

  /** @param value a whole number from 0 to 2^53 - 1. */
  number(value: number): void {
    this.#room(8);
    let rest = value;
    while (rest > 0x7f) {
      this.#bytes[this.#length++] = (rest % 0x80) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#bytes[this.#length++] = rest;
  }

  /** @param value a whole number from -2^52 to 2^52 - 1. */
  difference(value: number): void {
    this.number(value < 0 ? -2 * value - 1 : 2 * value);
  }

  bytes(value: Uint8Array): void {
    this.#room(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
  }

  text(value: string): void {
    const bytes = Buffer.from(value);
    this.number(bytes.length);
    this.bytes(bytes);
  }

  written(): Buffer<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  #room(length: number): void {
    if (this.#length + length <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(2 * this.#bytes.length, this.#length + length));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/** Reads what a ByteWriter wrote. Throws SNAPSHOT_DAMAGED, with the given name, instead of reading past the end. */
export class ByteReader {
  readonly #bytes: Uint8Array;
  readonly #name: string;
  #at = 0;

  constructor(bytes: Uint8Array, name: string) {
    this.#bytes = bytes;
    this.#name = name;
  }

  number(): number {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined) throw this.#ends();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) break;
      scale *= 0x80;
    }
    if (!Number.isSafeInteger(value)) throw damaged(`${this.#name}: a number is too large`);
    return value;
  }

  difference(): number {
    const value = this.number();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  bytes(length: number): Uint8Array {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw this.#ends();
    const bytes = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return bytes;
  }

  text(): string {
    return Buffer.from(this.bytes(this.number())).toString();
  }

  atEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  #ends(): Error {
    return damaged(`${this.#name} ends too early`);
  }
}
