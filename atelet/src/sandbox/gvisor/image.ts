import { constants } from "node:fs";
import { type FileHandle, mkdir, open, readFile, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";

/** Names that runsc gives to the files of an uncompressed image. */
export const imageFiles = ["checkpoint.img", "pages_meta.img", "pages.img"] as const;

/** First bytes of checkpoint.img (gVisor pkg/state/statefile). */
const magic = "gVisorSF";

/** Field numbers of MemoryFileMetadataProto and MemAcctRangeProto (gVisor pkg/sentry/pgalloc). */
const memAcctField = 3;
const rangeFields = { start: 1, end: 2, knownCommitted: 5 } as const;

interface Cursor {
  bytes: Buffer;
  offset: number;
}

function varint(cursor: Cursor): number {
  let value = 0;
  for (let scale = 1; ; scale *= 128) {
    const byte = cursor.bytes[cursor.offset++];
    if (byte === undefined) throw new Error("pages_meta.img ends within a number");
    value += (byte & 0x7f) * scale;
    if (byte < 0x80) return value;
  }
}

/** Calls `field` for each field of a protobuf message; only the two wire types that this message uses. */
function eachField(bytes: Buffer, field: (number: number, value: number | Buffer) => void): void {
  const cursor = { bytes, offset: 0 };
  while (cursor.offset < bytes.length) {
    const tag = varint(cursor);
    const value = varint(cursor);
    if ((tag & 7) === 0) {
      field(tag >> 3, value);
    } else if ((tag & 7) === 2) {
      const end = cursor.offset + value;
      if (end > bytes.length) throw new Error("pages_meta.img ends within a range");
      field(tag >> 3, bytes.subarray(cursor.offset, end));
      cursor.offset = end;
    } else {
      throw new Error(`pages_meta.img has the unknown wire type ${tag & 7}`);
    }
  }
}

/**
 * Bytes that pages.img must have: the committed ranges of the sandbox's memory file, which runsc writes one after
 * another. The first message of pages_meta.img (8 bytes of little-endian length, then protobuf) describes that file;
 * sandboxes whose overlay is in memory have no other.
 * @throws Error if it is truncated or of another format.
 */
export function committedBytes(pagesMeta: Buffer): number {
  if (pagesMeta.length < 8) throw new Error(`pages_meta.img has only ${pagesMeta.length} bytes`);
  const length = Number(pagesMeta.readBigUInt64LE(0));
  if (8 + length > pagesMeta.length) throw new Error("pages_meta.img is truncated");
  let total = 0;
  eachField(pagesMeta.subarray(8, 8 + length), (number, value) => {
    if (number !== memAcctField || typeof value === "number") return;
    const range = { start: 0, end: 0, knownCommitted: 0 };
    eachField(value, (inner, innerValue) => {
      if (typeof innerValue !== "number") return;
      if (inner === rangeFields.start) range.start = innerValue;
      if (inner === rangeFields.end) range.end = innerValue;
      if (inner === rangeFields.knownCommitted) range.knownCommitted = innerValue;
    });
    if (range.knownCommitted !== 0) total += range.end - range.start;
  });
  return total;
}

/**
 * Checks by the files' own sizes that an image is whole; a full disk can truncate one without an error of runsc.
 * Flipped bytes are not found: that takes digests.
 * @returns bytes of all its files.
 * @throws Error that names the file.
 */
export async function imageSize(imageDir: string): Promise<number> {
  const [state, meta, pages] = imageFiles;
  const stateFile = await readFile(join(imageDir, state));
  if (stateFile.toString("latin1", 0, magic.length) !== magic) throw new Error(`${state} has no gVisor header`);
  const pagesMeta = await readFile(join(imageDir, meta));
  const { size } = await stat(join(imageDir, pages));
  const expected = committedBytes(pagesMeta);
  if (size !== expected) throw new Error(`${pages} has ${size} bytes where ${meta} names ${expected}`);
  return stateFile.length + pagesMeta.length + size;
}

/**
 * The empty files of a new image, open, in the order in which a sandbox takes them.
 * @param options.direct its pages go around the page cache.
 * @throws if there is one already.
 */
export async function createImage(imageDir: string, { direct }: { direct: boolean }): Promise<FileHandle[]> {
  await mkdir(imageDir, { recursive: true });
  const files: FileHandle[] = [];
  try {
    for (const name of imageFiles) {
      const around = direct && name === "pages.img" ? constants.O_DIRECT : 0;
      const flags = constants.O_CREAT | constants.O_EXCL | constants.O_RDWR | around;
      files.push(await open(join(imageDir, name), flags, 0o644));
    }
    return files;
  } catch (error) {
    for (const file of files) await file.close();
    throw error;
  }
}

/**
 * Removes what a failed checkpoint left in its folder. Emptied first: the sandbox keeps the files of a failed
 * checkpoint open for as long as it lives, and with them their blocks.
 */
export async function removeImage(imageDir: string): Promise<void> {
  for (const name of imageFiles) {
    const path = join(imageDir, name);
    try {
      await truncate(path);
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") continue;
      throw error;
    }
    await rm(path);
  }
}
