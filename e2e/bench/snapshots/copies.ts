import { execFile } from "node:child_process";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Plan } from "./plan.ts";

const run = promisify(execFile);
const TIMEOUT_MS = 120_000;

/** What is measured of the bytes of an image, in this order. */
export const copyNames = {
  cp: "cp of the image, into the page cache",
  ddFromCache: "dd from the page cache",
  ddToDisk: "dd to the disk, around the page cache",
  ddFromDisk: "dd from the disk, around the page cache",
} as const;

/** The bytes of an image in and out of the file system that it lies in, by `cp` and `dd`: what nobody can be faster than. */
export async function copies({ ground, samples, signal }: Plan, imageDir: string, label: string): Promise<void> {
  const dir = join(ground.rig.dir, "copy");
  await mkdir(dir);
  const timed = async (name: string, program: string, args: readonly string[]): Promise<void> => {
    const startMs = performance.now();
    await run(program, args, { signal, timeout: TIMEOUT_MS, killSignal: "SIGKILL" });
    samples.add(`${name} ${label}`, performance.now() - startMs);
  };
  const pages = join(imageDir, "pages.img");
  const copied = join(dir, "direct");
  // all of its bytes, zeros too
  await timed(copyNames.cp, "cp", ["--recursive", "--sparse=never", "--reflink=never", imageDir, join(dir, "image")]);
  await timed(copyNames.ddFromCache, "dd", [`if=${pages}`, "of=/dev/null", "bs=1M", "status=none"]);
  await timed(copyNames.ddToDisk, "dd", [`if=${pages}`, `of=${copied}`, "bs=1M", "oflag=direct", "status=none"]);
  await timed(copyNames.ddFromDisk, "dd", [`if=${copied}`, "of=/dev/null", "bs=1M", "iflag=direct", "status=none"]);
  await rm(dir, { recursive: true });
}
