import { type Code, moduleOf, wasm } from "./wasm.ts";

const { get, set, tee, loop, i32, i64, v128, i64x2 } = wasm;

const PAGE = 4096;
/** Hashed in one call: what is copied in is still in the core's cache then. */
export const MOST_PAGES = 16;

// XXH3_128bits of xxHash 0.8, for inputs of 4096 bytes, seed 0: github.com/Cyan4973/xxHash, doc/xxhash_spec.md
const PRIME32 = [0x9e3779b1n, 0x85ebca77n, 0xc2b2ae3dn] as const;
const PRIME64 = [
  0x9e3779b185ebca87n,
  0xc2b2ae3d27d4eb4fn,
  0x165667b19e3779f9n,
  0x85ebca77c2b2ae63n,
  0x27d4eb2f165667c5n,
] as const;
const PRIME_MX1 = 0x165667919e3779f9n;
const SECRET = Buffer.from(
  "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221" +
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8" +
    "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb17" +
    "0ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e",
  "hex",
);
const STRIPE = 64;
const BLOCK = 1024;
/** In the memory: the secret, the hashes, the pages. */
const SECRET_AT = 0;
const HASHES_AT = 1024;
const PAGES_AT = 4096;
const HASH = 16;

/** The function's locals. `secret` goes on by 8 with each stripe. */
const PAGES = 0;
const [INPUT, OUTPUT, SECRET_NOW, STRIPES, BLOCKS] = [1, 2, 3, 4, 5];
const ACC = [6, 7, 8, 9] as const;
const [DATA, KEYED, LOW, HIGH, X, Y] = [10, 11, 12, 13, 14, 15];
const LOCALS = [
  ...Array.from({ length: 5 }, () => "i32" as const),
  ...Array.from({ length: 6 }, () => "v128" as const),
  ...Array.from({ length: 4 }, () => "i64" as const),
];

/** Dwords of a vector, each by its number. */
function dwords(...numbers: readonly number[]): Code {
  return v128.shuffle(numbers.flatMap((number) => [0, 1, 2, 3].map((byte) => 4 * number + byte)));
}

/** XXH3_accumulate_512: one stripe at INPUT. @param secret code that leaves its address, and an offset to that. */
function accumulate(secret: Code, offset: number): Code {
  return ACC.flatMap((acc, i) => [
    ...[...get(INPUT), ...v128.load(16 * i), ...tee(DATA)],
    ...[...secret, ...v128.load(offset + 16 * i), ...v128.xor, ...set(KEYED)],
    // acc[i ^ 1] += data; acc[i] += low half of keyed × high half
    ...[...get(acc), ...get(DATA), ...get(DATA), ...dwords(2, 3, 0, 1), ...i64x2.add],
    ...[...get(KEYED), ...get(KEYED), ...dwords(0, 2, 0, 2)],
    ...[...get(KEYED), ...get(KEYED), ...dwords(1, 3, 1, 3)],
    ...[...i64x2.extmulLowI32x4U, ...i64x2.add, ...set(acc)],
  ]);
}

/** So many stripes from INPUT on, which is behind them then. */
function accumulateStripes(count: Code): Code {
  return [
    ...[...i32.const(SECRET_AT), ...set(SECRET_NOW), ...count, ...set(STRIPES)],
    ...loop(
      accumulate(get(SECRET_NOW), 0),
      [...get(INPUT), ...i32.const(STRIPE), ...i32.add, ...set(INPUT)],
      [...get(SECRET_NOW), ...i32.const(8), ...i32.add, ...set(SECRET_NOW)],
      [...get(STRIPES), ...i32.const(1), ...i32.sub, ...tee(STRIPES)],
    ),
  ];
}

/** XXH3_scrambleAcc */
function scramble(): Code {
  return ACC.flatMap((acc, i) => [
    ...[...get(acc), ...get(acc), ...i32.const(47), ...i64x2.shrU, ...v128.xor],
    ...[...i32.const(SECRET_AT), ...v128.load(SECRET.length - STRIPE + 16 * i), ...v128.xor],
    ...[...i64.const(PRIME32[0]), ...i64x2.splat, ...i64x2.mul, ...set(acc)],
  ]);
}

/** XXH3_mul128_fold64 of X and Y: both halves of their product, xored. */
function fold(): Code {
  const low = (local: number): Code => [...get(local), ...i64.const(0xffffffffn), ...i64.and];
  const high = (local: number): Code => [...get(local), ...i64.const(32n), ...i64.shrU];
  return [
    // the upper half, from the four products of 32 bits
    ...[...low(X), ...low(Y), ...i64.mul, ...i64.const(32n), ...i64.shrU],
    ...[...high(X), ...low(Y), ...i64.mul, ...i64.add, ...tee(HIGH)],
    ...[...i64.const(0xffffffffn), ...i64.and, ...low(X), ...high(Y), ...i64.mul, ...i64.add],
    ...[...i64.const(32n), ...i64.shrU, ...get(HIGH), ...i64.const(32n), ...i64.shrU, ...i64.add],
    ...[...high(X), ...high(Y), ...i64.mul, ...i64.add],
    ...[...get(X), ...get(Y), ...i64.mul, ...i64.xor],
  ];
}

/** XXH3_mergeAccs, its result on the stack. */
function merge(secretAt: number, start: bigint): Code {
  const keyed = (acc: number, lane: 0 | 1, at: number): Code => [
    ...[...get(acc), ...i64x2.extractLane(lane)],
    ...[...i32.const(SECRET_AT), ...i64.load(secretAt + at), ...i64.xor],
  ];
  return [
    ...i64.const(start),
    ...ACC.flatMap((acc, i) => [
      ...[...keyed(acc, 0, 16 * i), ...set(X), ...keyed(acc, 1, 16 * i + 8), ...set(Y)],
      ...[...fold(), ...i64.add],
    ]),
    // XXH3_avalanche
    ...[...tee(X), ...get(X), ...i64.const(37n), ...i64.shrU, ...i64.xor, ...i64.const(PRIME_MX1), ...i64.mul],
    ...[...tee(X), ...get(X), ...i64.const(32n), ...i64.shrU, ...i64.xor],
  ];
}

const INITIAL = [
  [PRIME32[2], PRIME64[0]],
  [PRIME64[1], PRIME64[2]],
  [PRIME64[3], PRIME32[1]],
  [PRIME64[4], PRIME32[0]],
] as const;

const WHOLE_BLOCKS = (PAGE - 1 - ((PAGE - 1) % BLOCK)) / BLOCK;
const LAST_STRIPES = Math.floor((PAGE - 1 - WHOLE_BLOCKS * BLOCK) / STRIPE);

const onePage: Code = [
  ...INITIAL.flatMap(([low, high], i) => [...v128.const(low, high), ...set(ACC[i] ?? 0)]),
  ...[...i32.const(WHOLE_BLOCKS), ...set(BLOCKS)],
  ...loop(accumulateStripes(i32.const(BLOCK / STRIPE)), scramble(), [
    ...get(BLOCKS),
    ...i32.const(1),
    ...i32.sub,
    ...tee(BLOCKS),
  ]),
  ...accumulateStripes(i32.const(LAST_STRIPES)),
  // the last stripe
  ...accumulate(i32.const(SECRET_AT), SECRET.length - STRIPE - 7),
  ...[...get(INPUT), ...i32.const(STRIPE), ...i32.add, ...set(INPUT)],
  ...[...merge(11, BigInt(PAGE) * PRIME64[0]), ...set(LOW)],
  // as its canonical form has it: high half first, each from its highest byte down
  ...[...get(OUTPUT), ...get(LOW), ...i64x2.splat],
  ...[...merge(SECRET.length - STRIPE - 11, ~(BigInt(PAGE) * PRIME64[1])), ...i64x2.replaceLane(1), ...tee(DATA)],
  ...[...get(DATA), ...v128.shuffle(Array.from({ length: 16 }, (_none, i) => 15 - i)), ...v128.store(0)],
  ...[...get(OUTPUT), ...i32.const(HASH), ...i32.add, ...set(OUTPUT)],
];

const code: Code[] = [
  [...i32.const(PAGES_AT), ...set(INPUT), ...i32.const(HASHES_AT), ...set(OUTPUT)],
  loop(onePage, [...get(PAGES), ...i32.const(1), ...i32.sub, ...tee(PAGES)]),
];

interface Exports {
  memory: { buffer: ArrayBuffer };
  run: (pages: number) => void;
}

/** What of Node's own is used here; its type declarations lack it. */
interface Assembly {
  instantiate: (module: Uint8Array<ArrayBuffer>) => Promise<{ instance: { exports: unknown } }>;
}

/** xxh128 of pages, all of a few in one call, by the vector instructions that every x86-64 has. */
export class Xxh128 {
  readonly #pages: Uint8Array;
  readonly #hashes: Uint8Array;
  readonly #run: (pages: number) => void;

  private constructor({ memory: { buffer }, run }: Exports) {
    new Uint8Array(buffer).set(SECRET, SECRET_AT);
    this.#pages = new Uint8Array(buffer, PAGES_AT, MOST_PAGES * PAGE);
    this.#hashes = new Uint8Array(buffer, HASHES_AT, MOST_PAGES * HASH);
    this.#run = run;
  }

  static async create(): Promise<Xxh128> {
    const memoryPages = Math.ceil((PAGES_AT + MOST_PAGES * PAGE) / (64 << 10));
    const module = moduleOf({ memoryPages, parameters: 1, locals: LOCALS, code });
    const { WebAssembly } = globalThis as unknown as { WebAssembly: Assembly };
    const { instance } = await WebAssembly.instantiate(module);
    // as moduleOf says
    return new Xxh128(instance.exports as Exports);
  }

  /** @param pages 1 to MOST_PAGES whole ones. @returns 16 bytes of each, until the next call. */
  of(pages: Uint8Array): Uint8Array {
    this.#pages.set(pages);
    this.#run(pages.length / PAGE);
    return this.#hashes.subarray(0, (pages.length / PAGE) * HASH);
  }
}
