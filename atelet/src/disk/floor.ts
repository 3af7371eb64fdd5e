import { SubstrateError } from "@substrate/lib/errors.ts";

/** How much of the disk is kept free: bytes, a part of it, or what suits its size. */
export type DiskFloor = { kind: "auto" } | { kind: "bytes"; bytes: number } | { kind: "percent"; percent: number };

const AUTO_BYTES = 2 * 2 ** 30;
const AUTO_PART = 0.05;
/** Of a small disk 2 GiB would be all. */
const AUTO_MOST_PART = 0.1;
const MAX_PERCENT = 50;

/** `auto`, a number of bytes, or `<n>%` up to 50. Throws INVALID. */
export function parseFloor(text: string): DiskFloor {
  if (text === "auto") return { kind: "auto" };
  const [, number, percent] = /^(\d{1,15})(%?)$/.exec(text) ?? [];
  if (number !== undefined && percent === "") return { kind: "bytes", bytes: Number(number) };
  if (number !== undefined && Number(number) <= MAX_PERCENT) return { kind: "percent", percent: Number(number) };
  throw new SubstrateError("INVALID", `expects auto, a number of bytes, or 0% to ${MAX_PERCENT}%`);
}

/** @param sizeBytes of the file system. */
export function floorBytes(floor: DiskFloor, sizeBytes: number): number {
  if (floor.kind === "bytes") return floor.bytes;
  if (floor.kind === "percent") return Math.floor((sizeBytes * floor.percent) / 100);
  return Math.floor(Math.min(Math.max(AUTO_BYTES, sizeBytes * AUTO_PART), sizeBytes * AUTO_MOST_PART));
}
