/** Writes WebAssembly in its binary form: instructions are bytes, a function's code is what its instructions say in turn. */
export type Code = readonly number[];

function unsigned(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80);
  return [...bytes, rest];
}

function signed(value: bigint): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (;;) {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    const isLast = (rest === 0n && low < 0x40) || (rest === -1n && low >= 0x40);
    bytes.push(isLast ? low : low | 0x80);
    if (isLast) return bytes;
  }
}

const simd = (opcode: number): number[] => [0xfd, ...unsigned(opcode)];
const memory = (offset: number): number[] => [0, ...unsigned(offset)];

/** Instructions by their names; operands come from the stack. */
export const wasm = {
  get: (local: number): Code => [0x20, local],
  set: (local: number): Code => [0x21, local],
  tee: (local: number): Code => [0x22, local],
  /** Repeats its body while what that leaves on the stack isn't 0. */
  loop: (...body: Code[]): Code => [0x03, 0x40, ...body.flat(), 0x0d, 0, 0x0b],
  i32: {
    const: (value: number): Code => [0x41, ...signed(BigInt(value))],
    add: [0x6a],
    sub: [0x6b],
  },
  i64: {
    const: (value: bigint): Code => [0x42, ...signed(BigInt.asIntN(64, value))],
    load: (offset: number): Code => [0x29, ...memory(offset)],
    add: [0x7c],
    mul: [0x7e],
    and: [0x83],
    xor: [0x85],
    shrU: [0x88],
  },
  v128: {
    load: (offset: number): Code => [...simd(0), ...memory(offset)],
    store: (offset: number): Code => [...simd(0x0b), ...memory(offset)],
    const: (low: bigint, high: bigint): Code => {
      const bytes = new DataView(new ArrayBuffer(16));
      bytes.setBigUint64(0, BigInt.asUintN(64, low), true);
      bytes.setBigUint64(8, BigInt.asUintN(64, high), true);
      return [...simd(0x0c), ...new Uint8Array(bytes.buffer)];
    },
    /** @param bytes of both operands, 16 of them. */
    shuffle: (bytes: readonly number[]): Code => [...simd(0x0d), ...bytes],
    xor: simd(0x51),
  },
  i64x2: {
    splat: simd(0x12),
    extractLane: (lane: 0 | 1): Code => [...simd(0x1d), lane],
    replaceLane: (lane: 0 | 1): Code => [...simd(0x1e), lane],
    shrU: simd(0xcd),
    add: simd(0xce),
    mul: simd(0xd5),
    /** Products of the lower two of each operand's four. */
    extmulLowI32x4U: simd(0xde),
  },
} as const;

const valueTypes = { i32: 0x7f, i64: 0x7e, v128: 0x7b } as const;

function vector(items: readonly (readonly number[])[]): number[] {
  return [...unsigned(items.length), ...items.flat()];
}

function section(id: number, content: readonly number[]): number[] {
  return [id, ...unsigned(content.length), ...content];
}

/** A name in UTF-8. */
function name(text: string): number[] {
  return vector([...Buffer.from(text)].map((byte) => [byte]));
}

/**
 * A module with a memory of so many pages of 64 KiB, and one function of i32 parameters and no result, both exported:
 * `memory` and `run`. Locals of a function are numbered after its parameters.
 */
export function moduleOf(options: {
  memoryPages: number;
  parameters: number;
  locals: readonly (keyof typeof valueTypes)[];
  code: readonly Code[];
}): Uint8Array<ArrayBuffer> {
  const { memoryPages, parameters, locals, code } = options;
  const parameterTypes = Array.from({ length: parameters }, () => [valueTypes.i32]);
  const body = [...vector(locals.map((type) => [1, valueTypes[type]])), ...code.flat(), 0x0b];
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, vector([[0x60, ...vector(parameterTypes), 0]])),
    ...section(3, vector([[0]])),
    ...section(5, vector([[0, ...unsigned(memoryPages)]])),
    ...section(
      7,
      vector([
        [...name("memory"), 2, 0],
        [...name("run"), 0, 0],
      ]),
    ),
    ...section(10, vector([[...unsigned(body.length), ...body]])),
  ]);
}
